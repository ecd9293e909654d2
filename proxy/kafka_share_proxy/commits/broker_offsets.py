"""Committed offsets of the broker, requested over the client's own connection (commits/README.md rule 14).

OffsetFetch v7 is the lowest version with `require_stable` (KIP-447), and names topics. A client that may commit has the
DESCRIBE rights that it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.served.upstream_requests import decode_response, send_request
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

OFFSET_FETCH_VERSION = 7


class BrokerOffset(NamedTuple):
    """The broker's entry for one partition."""

    offset: int
    leader_epoch: int
    metadata: str | None
    error_code: ErrorCode


async def request_committed(
    connection: Connection, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, BrokerOffset]:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    request = messages.OffsetFetchRequest
    topics = [
        request.OffsetFetchRequestTopic(name=name, partition_indexes=offsets) for name, offsets in by_topic.items()
    ]
    offset_fetch = request(group_id=group_id, topics=topics, require_stable=True)
    responded = await send_request(connection, ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, offset_fetch)
    response = decode_response(messages.OffsetFetchResponse, OFFSET_FETCH_VERSION, responded)
    refused = ErrorCode.of(response.error_code)
    offsets = {
        partition: BrokerOffset(-1, -1, None, refused or ErrorCode.UNKNOWN_SERVER_ERROR) for partition in partitions
    }
    for topic in response.topics or ():
        for entry in topic.partitions or ():
            code = refused or ErrorCode.of(entry.error_code)
            partition = TopicPartition(topic.name, entry.partition_index)
            offsets[partition] = BrokerOffset(
                entry.committed_offset, entry.committed_leader_epoch, entry.metadata, code
            )
    return offsets
