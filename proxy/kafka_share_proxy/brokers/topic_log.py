"""Reader of the log of a topic of the proxy's own, from its start, over a connection to its leader.

Fetch uses the topic id if the caller knows it, to detect a topic that was deleted and created anew under the same name
(KIP-516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_share_proxy.brokers.cluster_connection import ClusterConnection
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.values import ZERO_UUID

FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 6
FETCH_BY_ID_VERSION = 13
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets: start of a log, and the offset after its last record."""
CONSUMER = -1


async def request_offsets(
    opened: ClusterConnection, topic: str, partitions: Iterable[int], timestamp: int
) -> list[messages.ListOffsetsResponse.ListOffsetsPartitionResponse]:
    """Return the response's entries, errors included. Raises UpstreamLost."""
    request = messages.ListOffsetsRequest
    entries = [request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    query = request(replica_id=CONSUMER, topics=[request.ListOffsetsTopic(name=topic, partitions=entries)])
    response = await opened.send_request(ApiKey.LIST_OFFSETS, query, version=LIST_OFFSETS_VERSION)
    return list(response.topics[0].partitions)


async def fetch(
    opened: ClusterConnection,
    topic: str,
    positions: Mapping[int, int],
    *,
    wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
    topic_id: bytes = ZERO_UUID,
) -> list[messages.FetchResponse.PartitionData]:
    """Fetch from `positions` (partition -> offset). Errors are included. Raises UpstreamLost.

    `topic_id`: the topic must have this id. If another topic has the name by now, the error is UNKNOWN_TOPIC_ID.
    """
    request = messages.FetchRequest
    partitions = [
        request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for partition, offset in positions.items()
    ]
    query = request(
        replica_id=CONSUMER,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )
    version = FETCH_VERSION if topic_id == ZERO_UUID else FETCH_BY_ID_VERSION
    response = await opened.send_request(ApiKey.FETCH, query, version=version)
    return [entry for responded in response.responses for entry in responded.partitions]
