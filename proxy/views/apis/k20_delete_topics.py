"""DeleteTopics (key 20): a view's topic may be deleted as any other; what is known of the view goes with it.

Versions: all. The broker answers; a view it has deleted is forgotten, with what was stored of it, so that a view of the
same name begins anew.
"""

from __future__ import annotations

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.chain import answer_behind
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.early_looks import AnyOf
from proxy.forwarding.interfaces import Call
from proxy.views import state_records
from proxy.views.apis.named_views import NAMES_VIEW, has_view_id
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.DELETE_TOPICS


async def handle(call: Call[messages.DeleteTopicsRequest], views: ViewServices) -> bytes | None:
    """A request that may delete views."""
    ids = {view.topic_id: view.name.topic for view in views.catalog}
    answer = await answer_behind(call)
    for result in answer.responses or ():
        topic = result.name or ids.get(bytes(result.topic_id))
        if topic is not None and is_view(topic) and result.error_code == ErrorCode.NONE:
            views.catalog.forget(topic)
            views.catalog.bind(topic, None)
            views.keeper.store.store(state_records.binding_key(topic), None)
    return reply(call, answer)


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: AnyOf((NAMES_VIEW, has_view_id(views.catalog))))
