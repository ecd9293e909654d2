"""DeleteTopics (key 20): a view's topic may be deleted as any other; what is known of the view goes with it.

Versions: all. The broker answers; a view it has deleted is forgotten, with what was stored of it, so that a view of the
same name begins anew.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.chain import answer_behind
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.views import state_records
from proxy.views.apis.share_group_refusals import names_view_id
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX_BYTES, is_view
from proxy.views.services import ViewServices
from proxy.wire.errors import ErrorCode

KEY = 20


def serve_here(catalog: ViewCatalog) -> Callable[[memoryview], bool]:
    """Requests that name a view, or the topic id of one that is known."""

    def serve(frame: memoryview) -> bool:
        data = bytes(frame)
        return PREFIX_BYTES in data or names_view_id(data, catalog)

    return serve


async def handle(call: Call, views: ViewServices) -> bytes | None:
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


API = DeclaredApi(key=KEY, handle=handle, wants=lambda views: serve_here(views.catalog))
