"""Share groups do not read views: their members hear so, wherever the group is served.

A broker would let such a group form and show it an empty topic; here nothing would be read either, for share groups
divide a partition's records themselves. So whoever subscribes a share group to a view, sets its offsets there or
acquires from it by topic id gets 42 (INVALID_REQUEST) with a text: clients end with it instead of waiting for ever.
"""

from __future__ import annotations

from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.forwarding.routes import Picks
from proxy.views.apis.named_views import NAMES_VIEW, has_view_id
from proxy.views.model.names import is_view
from proxy.views.services import ViewServices
from proxy.wire import frames, messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.messages import Message

TEXT = "share groups do not read views: subscribe to the topic itself"


async def refuse(call: Call[Message], _: ViewServices) -> bytes:
    """A request that names a view."""
    response = registry.message(f"{registry.API_KEYS[call.key]}Response")
    refusal: Message = response(error_code=int(ErrorCode.INVALID_REQUEST), error_message=TEXT)
    return frames.response(call.key, call.version, call.correlation_id, refusal)


def _subscribes(_: ViewServices) -> Picks:
    async def picks(call: Call[messages.ShareGroupHeartbeatRequest]) -> bool:
        return any(map(is_view, call.message.subscribed_topic_names or ()))

    return picks


def _acquires(views: ViewServices) -> Picks:
    async def picks(call: Call[messages.ShareFetchRequest]) -> bool:
        return any(views.catalog.view(bytes(topic.topic_id)) for topic in call.message.topics or ())

    return picks


def _sets_offsets(_: ViewServices) -> Picks:
    async def picks(call: Call[messages.AlterShareGroupOffsetsRequest]) -> bool:
        return any(is_view(topic.topic_name) for topic in call.message.topics or ())

    return picks


APIS = (
    DeclaredApi(key=ApiKey.SHARE_GROUP_HEARTBEAT, handle=refuse, wants=lambda _: NAMES_VIEW, picks=_subscribes),
    DeclaredApi(key=ApiKey.SHARE_FETCH, handle=refuse, wants=lambda views: has_view_id(views.catalog), picks=_acquires),
    DeclaredApi(key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, handle=refuse, wants=lambda _: NAMES_VIEW, picks=_sets_offsets),
)
