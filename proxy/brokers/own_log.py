"""Reading the log of a topic of the proxy's own, from its start on, over a connection to its leader.

Topics go by name: their versions of Fetch and ListOffsets are the last ones that have names and nothing that is wanted
came later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.brokers.own_connection import OwnConnection
from proxy.wire import registry

FETCH, LIST_OFFSETS = 1, 2
FETCH_VERSION, LIST_OFFSETS_VERSION = 11, 6
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets: where a log begins, and the offset behind its last record."""
CONSUMER = -1
"""Replica id of who is none."""


async def ask_offsets(opened: OwnConnection, topic: str, partitions: Iterable[int], timestamp: int) -> list[Any]:
    """ListOffsetsPartitionResponse of each partition, errors included. Raises UpstreamLost."""
    request = registry.message("ListOffsetsRequest")
    wanted = [request.ListOffsetsPartition(partition_index=partition, timestamp=timestamp) for partition in partitions]
    question = request(replica_id=CONSUMER, topics=[request.ListOffsetsTopic(name=topic, partitions=wanted)])
    answer = await opened.ask(LIST_OFFSETS, question, version=LIST_OFFSETS_VERSION)
    return list(answer.topics[0].partitions)


async def fetch(
    opened: OwnConnection,
    topic: str,
    positions: Mapping[int, int],
    *,
    wait_ms: int,
    max_bytes: int,
    partition_bytes: int,
) -> list[Any]:
    """PartitionData of what follows in these partitions (partition -> offset), errors included. Raises UpstreamLost."""
    request = registry.message("FetchRequest")
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
        topics=[request.FetchTopic(topic=topic, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = await opened.ask(FETCH, question, version=FETCH_VERSION)
    return [entry for answered in answer.responses for entry in answered.partitions]
