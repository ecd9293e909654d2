"""Refusal of share groups on views, wherever the share group is served (views/README.md rule 51)."""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.dispatch.routes import Picks
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW, has_view_id
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ErrorCode

TEXT = "share groups do not read views: subscribe to the topic itself"


async def refuse(call: Call[Message], _: ViewServices) -> bytes:
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
