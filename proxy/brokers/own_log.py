"""Reading the log of a topic of the proxy's own, from its start on, over a connection to its leader.

Offsets are asked of a topic by name: nothing that is wanted came after that version of ListOffsets. Records are asked
by topic id where the caller knows it: a topic that was deleted and made anew under the same name is told apart
(KIP-516).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.brokers.own_connection import OwnConnection
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.values import ZERO_UUID

FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 6
FETCH_BY_ID_VERSION = 13
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets: where a log begins, and the offset behind its last record."""
CONSUMER = -1
"""Replica id of who is none."""


async def ask_offsets(
    opened: OwnConnection, topic: str, partitions: Iterable[int], timestamp: int
) -> list[messages.ListOffsetsResponse.ListOffsetsPartitionResponse]:
    """ListOffsetsPartitionResponse of each partition, errors included. Raises UpstreamLost."""
    request = messages.ListOffsetsRequest
    wanted = [request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    question = request(replica_id=CONSUMER, topics=[request.ListOffsetsTopic(name=topic, partitions=wanted)])
    answer = await opened.ask(ApiKey.LIST_OFFSETS, question, version=LIST_OFFSETS_VERSION)
    return list(answer.topics[0].partitions)


async def fetch(
    opened: OwnConnection,
    topic: str,
    positions: Mapping[int, int],
    *,
    wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
    topic_id: bytes = ZERO_UUID,
) -> list[messages.FetchResponse.PartitionData]:
    """PartitionData of what follows in these partitions (partition -> offset), errors included.

    `topic_id`: of no other topic; where there is another one of that name by now, the error is UNKNOWN_TOPIC_ID.

    Raises:
        UpstreamLost: no answer came.
    """
    request = messages.FetchRequest
    partitions = [
        request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for partition, offset in positions.items()
    ]
    question = request(
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
    answer = await opened.ask(ApiKey.FETCH, question, version=version)
    return [entry for answered in answer.responses for entry in answered.partitions]
