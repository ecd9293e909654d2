"""Reads of single records by offset, under the proxy's own identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple, TypeAlias

from kafka_share_proxy.brokers.cluster_metadata import ClusterMetadata, Leader
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.brokers.queries import about_topics
from kafka_share_proxy.brokers.topic_log import EARLIEST
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.records import Record

_Entry: TypeAlias = "messages.FetchResponse.PartitionData"

READ_BYTES = 1 << 20
"""Bytes requested by one Fetch."""
READS_MAX = 16
"""Maximum number of Fetches for one look-up."""
CONSUMER = -1


class FoundRecords(NamedTuple):
    """Records of a look-up."""

    records: dict[int, Record]
    """Records by offset. Those that no longer exist are missing."""
    end: int
    """Offsets from here on were not read, because the look-up reached a limit."""


class RecordLookup:
    """Reads of records of any topic that the identity may READ."""

    def __init__(self, own: ClusterQueries, topology: ClusterMetadata, now: Callable[[], float]) -> None:
        self._own, self._topology, self._now = own, topology, now

    async def read(self, topic_id: bytes, partition: int, offsets: Sequence[int], until: float = inf) -> FoundRecords:
        """Return the records at these ascending offsets. No Fetch is sent at `until` or later.

        Raises UpstreamLost if the leader does not respond or refuses.
        """
        records: dict[int, Record] = {}
        to_find = set(offsets)
        offset, last = offsets[0], offsets[-1]
        for _ in range(READS_MAX):
            if self._now() >= until:
                return FoundRecords(records, offset)
            entry = await self._fetch(topic_id, partition, offset)
            if entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                start = await self._log_start(topic_id, partition)
                following = next((each for each in offsets if each >= start > offset), None)
                if following is None:
                    break
                offset = following
                continue
            if entry.error_code != ErrorCode.NONE:
                self._topology.set_stale(await self.name_of(topic_id))
                raise UpstreamLost(f"records cannot be read: {error_name(entry.error_code)}")
            end = _collect(entry, offset, to_find, records)
            if end <= offset or end > last:
                break
            offset = next(each for each in offsets if each >= end)
        else:
            return FoundRecords(records, offset)
        return FoundRecords(records, last + 1)

    async def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic. Raises UpstreamLost if no broker knows it."""
        topic = self._topology.topic_by_id(topic_id)
        if topic is None:
            await self._refresh(topic_id)
            topic = self._topology.topic_by_id(topic_id)
        if topic is None:
            raise UpstreamLost(f"no broker knows topic {topic_id.hex()}")
        return topic.name

    async def _fetch(self, topic_id: bytes, partition: int, offset: int) -> _Entry:
        name, leader = await self._leader(topic_id, partition)
        message = messages.FetchRequest
        to_find = message.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=READ_BYTES, current_leader_epoch=leader.epoch
        )
        request = message(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[message.FetchTopic(topic=name, topic_id=topic_id, partitions=[to_find])],
            forgotten_topics_data=[],
            rack_id="",
        )
        response = await self._own.send_request(leader.node_id, ApiKey.FETCH, request)
        entries = [entry for each in response.responses for entry in each.partitions]
        if response.error_code != ErrorCode.NONE or len(entries) != 1:
            raise UpstreamLost(f"records cannot be read: {error_name(response.error_code)}")
        return entries[0]

    async def _log_start(self, topic_id: bytes, partition: int) -> int:
        """Return the first offset of the log. Raises UpstreamLost."""
        name, leader = await self._leader(topic_id, partition)
        message = messages.ListOffsetsRequest
        to_find = message.ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        request = message(replica_id=CONSUMER, topics=[message.ListOffsetsTopic(name=name, partitions=[to_find])])
        response = await self._own.send_request(leader.node_id, ApiKey.LIST_OFFSETS, request)
        (entry,) = response.topics[0].partitions
        if entry.error_code != ErrorCode.NONE:
            raise UpstreamLost(f"the start of {name}-{partition} is not known: {error_name(entry.error_code)}")
        return int(entry.offset)

    async def _leader(self, topic_id: bytes, partition: int) -> tuple[str, Leader]:
        """Return the name of the topic, and the leader. Raises UpstreamLost."""
        name = await self.name_of(topic_id)
        if self._topology.is_stale(name):
            await self._refresh(topic_id)
        leader = self._topology.leader(topic_id, partition)
        if leader is None:
            raise UpstreamLost(f"the leader of {name}-{partition} is not known")
        return name, leader

    async def _refresh(self, topic_id: bytes) -> None:
        failure: ProxyError = UpstreamLost("no broker is known")
        for node_id in sorted(self._topology.brokers):
            try:
                response = await self._own.send_request(node_id, ApiKey.METADATA, about_topics(ids=[topic_id]))
            except ProxyError as error:
                failure = error
            else:
                self._topology.fold(response, self._now())
                return
        raise failure


def _collect(entry: _Entry, offset: int, to_find: set[int], records: dict[int, Record]) -> int:
    """Add the requested records of a response. Return the offset after it, or `offset` if it is empty."""
    following = offset
    for batch in fetched_records(entry.records or b"", offset):
        following = batch.next_offset
        records.update((record.offset, record) for record in batch.records if record.offset in to_find)
    return following
