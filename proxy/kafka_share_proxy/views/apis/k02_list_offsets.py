"""ListOffsets (key 2): served here from the base partitions if it names a view, otherwise forwarded unchanged.

Rules: views/README.md 21 and 29. The offset of the largest timestamp may belong to another slot.

KIPs: 320, 396, 734, 405, 1005, 1023.
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

KEY = ApiKey.LIST_OFFSETS


@cache
def _shape() -> MessageShape[messages.ListOffsetsResponse, messages.ListOffsetsResponse.ListOffsetsPartitionResponse]:
    """Build the shape at the first request, because it creates the classes of messages."""
    return MessageShape(
        request_topic=messages.ListOffsetsRequest.ListOffsetsTopic,
        request_partition=messages.ListOffsetsRequest.ListOffsetsPartition,
        response=messages.ListOffsetsResponse,
        response_topic=messages.ListOffsetsResponse.ListOffsetsTopicResponse,
        response_partition=messages.ListOffsetsResponse.ListOffsetsPartitionResponse,
        topic="name",
        partition="partition_index",
        content=("timestamp", "current_leader_epoch"),
    )


async def handle(call: Call[messages.ListOffsetsRequest], views: ViewServices) -> bytes | None:
    return await respond_from_bases(call, views, _shape())


API = DeclaredApi(key=KEY, handle=handle, wants=lambda _: NAMES_VIEW)
