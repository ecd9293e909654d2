"""Share groups do not read views: their members hear so, wherever the group is served.

A broker would let such a group form and show it an empty topic; here nothing would be read either, for share groups
divide a partition's records themselves. So whoever subscribes a share group to a view, sets its offsets there or
acquires from it by topic id gets 42 (INVALID_REQUEST) with a text: clients end with it instead of waiting for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.forwarding.ask_and_reply import reply
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Picks
from proxy.views.model.catalog import ViewCatalog
from proxy.views.model.names import PREFIX_BYTES, is_view
from proxy.views.services import ViewServices
from proxy.wire import registry
from proxy.wire.errors import ErrorCode

HEARTBEAT, FETCH, ALTER_OFFSETS = 76, 78, 91
SEARCHED_BYTES = 8 << 10
"""A longer request is not searched for the id of each view: it is read."""
TEXT = "share groups do not read views: subscribe to the topic itself"


def names_view(frame: memoryview) -> bool:
    """Requests in which the name of a view may stand."""
    return PREFIX_BYTES in bytes(frame)


def has_view_id(catalog: ViewCatalog) -> Callable[[memoryview], bool]:
    """Requests in which the topic id of a known view stands."""

    def serve_here(frame: memoryview) -> bool:
        return names_view_id(bytes(frame), catalog)

    return serve_here


def names_view_id(data: bytes, catalog: ViewCatalog) -> bool:
    """Whether the topic id of a known view may stand in a request: it is searched for each of them."""
    return len(catalog) > 0 and (len(data) > SEARCHED_BYTES or any(view.topic_id in data for view in catalog))


async def refuse(call: Call, _: ViewServices) -> bytes:
    """A request that names a view."""
    answer = registry.message(f"{registry.API_KEYS[call.key]}Response")
    return reply(call, answer(error_code=int(ErrorCode.INVALID_REQUEST), error_message=TEXT))


def _subscribes(_: ViewServices) -> Picks:
    async def picks(call: Call) -> bool:
        return any(map(is_view, call.message.subscribed_topic_names or ()))

    return picks


def _acquires(views: ViewServices) -> Picks:
    async def picks(call: Call) -> bool:
        return any(views.catalog.view(bytes(topic.topic_id)) for topic in call.message.topics or ())

    return picks


def _sets_offsets(_: ViewServices) -> Picks:
    async def picks(call: Call) -> bool:
        return any(is_view(topic.topic_name) for topic in call.message.topics or ())

    return picks


APIS = (
    DeclaredApi(key=HEARTBEAT, handle=refuse, wants=lambda _: names_view, picks=_subscribes),
    DeclaredApi(key=FETCH, handle=refuse, wants=lambda views: has_view_id(views.catalog), picks=_acquires),
    DeclaredApi(key=ALTER_OFFSETS, handle=refuse, wants=lambda _: names_view, picks=_sets_offsets),
)
