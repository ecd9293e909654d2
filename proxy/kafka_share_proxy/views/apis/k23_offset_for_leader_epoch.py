"""OffsetForLeaderEpoch (key 23): served from the base partitions if it names a view, otherwise forwarded.

Rules: views/README.md 21 and 29. Every leader epoch that a consumer of a view holds is one of the base.

KIPs: 101, 320.
"""

from __future__ import annotations

from functools import cache

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.views.apis.base_queries import MessageShape, respond_from_bases
from kafka_share_proxy.views.apis.named_views import NAMES_VIEW
from kafka_share_proxy.views.services import ViewServices
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH


@cache
def _shape() -> MessageShape[
    messages.OffsetForLeaderEpochResponse, messages.OffsetForLeaderEpochResponse.EpochEndOffset
]:
    """Build the shape at the first request, because it creates the classes of messages."""
    return MessageShape(
        request_topic=messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic,
        request_partition=messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
        response=messages.OffsetForLeaderEpochResponse,
        response_topic=messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult,
        response_partition=messages.OffsetForLeaderEpochResponse.EpochEndOffset,
        topic="topic",
        partition="partition",
        content=("current_leader_epoch", "leader_epoch"),
    )


async def handle(call: Call[messages.OffsetForLeaderEpochRequest], views: ViewServices) -> bytes | None:
    return await respond_from_bases(call, views, _shape())


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
