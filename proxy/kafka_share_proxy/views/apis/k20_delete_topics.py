"""DeleteTopics (key 20): a view's topic may be deleted like any other, and the state of the view with it.

Versions: all. The broker serves the request. A later view of the same name starts from scratch.
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.chain import next_response
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.early_matches import AnyOf
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.views import state_records
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW, has_view_id
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DELETE_TOPICS


async def handle(call: Call[messages.DeleteTopicsRequest], views: ViewServices) -> bytes | None:
    ids = {view.topic_id: view.name.topic for view in views.catalog}
    response = await next_response(call)
    for result in response.responses or ():
        await call.work.step()
        topic = result.name or ids.get(bytes(result.topic_id))
        if topic is not None and is_view(topic) and result.error_code == ErrorCode.NONE:
            views.catalog.forget(topic)
            views.catalog.bind(topic, None)
            views.creation.store.store(state_records.binding_key(topic), None)
    return await replied(call, response)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: AnyOf((NAMES_VIEW, has_view_id(views.catalog))))
