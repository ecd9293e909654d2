"""The topic `__proxy_views` as the cluster has it: made with the first record, read from its start, appended to.

One partition, compacted, replicated as `__consumer_offsets` is (views/README.md rule 18). All of it is done under the
proxy's own identity, by one task at a time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proxy.brokers.own_client import OwnClient
from proxy.brokers.own_connection import OwnConnection, connection, error_name
from proxy.durable.state_topic import CONFIGS, CREATE_MS, CREATE_TOPICS, OFFSETS_TOPIC, REPLICAS_MAX, TopicRefused
from proxy.views.state_records import PARTITIONS, TOPIC
from proxy.wire import records, registry
from proxy.wire.errors import ErrorCode, RemoteProtocolError, UpstreamLost
from proxy.wire.values import UNKNOWN_NODE, Address

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
PRODUCE_VERSION, FETCH_VERSION, LIST_OFFSETS_VERSION = 9, 11, 6
"""Topics go by name up to here, and nothing of what came later is wanted."""
EARLIEST, LATEST = -2, -1
FETCH_BYTES = 1 << 20
WRITE_MS = 10_000
ALL_REPLICAS = -1
_REFUSED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)

Fact = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class ViewTopic:
    """Asked through a client of its own."""

    def __init__(self, client: OwnClient) -> None:
        self._client = client

    async def leader(self) -> Address | None:
        """Where the topic is led; None when it does not exist.

        Raises:
            TopicRefused: the proxy may not see it, or it has another number of partitions.
            UpstreamLost, AuthenticationFailed: no server answers, or there is no leader.
        """
        answer, _ = await self._client.metadata([TOPIC])
        (topic,) = answer.topics
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code in _REFUSED:
            raise TopicRefused(f"the proxy's own identity may not DESCRIBE topic {TOPIC}")
        if topic.error_code == ErrorCode.NONE and len(topic.partitions) != PARTITIONS:
            raise TopicRefused(f"topic {TOPIC} has {len(topic.partitions)} partitions and must have {PARTITIONS}")
        leader = topic.partitions[0].leader_id if topic.error_code == ErrorCode.NONE else UNKNOWN_NODE
        for broker in answer.brokers or ():
            if broker.node_id == leader:
                return self._client.address_of(leader, Address(broker.host, broker.port))
        raise UpstreamLost(f"topic {TOPIC} has no leader")

    async def create(self) -> None:
        """Make it; nothing happens when somebody else just did. Raises as `leader`."""
        offsets, _ = await self._client.metadata([OFFSETS_TOPIC])
        found = [len(partition.replica_nodes or ()) for partition in offsets.topics[0].partitions or ()]
        replicas = min(found) if found else min(REPLICAS_MAX, len(offsets.brokers))
        configs = CONFIGS | {"min.insync.replicas": str(max(1, replicas - 1))}
        request = registry.message("CreateTopicsRequest")
        topic = request.CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=replicas,
            assignments=[],
            configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        answer, _ = await self._client.ask(CREATE_TOPICS, request(topics=[topic], timeout_ms=CREATE_MS))
        (result,) = answer.topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
            text = result.error_message or error_name(result.error_code)
            raise TopicRefused(f"topic {TOPIC} cannot be created: {text}")

    async def end(self, leader: Address) -> int:
        """The offset behind the last record. Raises as `leader`."""
        async with connection(leader, self._client.settings) as opened:
            return await _offset(opened, LATEST)

    async def append(self, leader: Address, facts: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records, to all replicas in sync. Raises as `leader`."""
        now = time.time_ns() // 1_000_000
        batch = records.build_batch(0, [records.Record(key, value, timestamp=now) for key, value in facts])
        message = registry.message("ProduceRequest")
        data = message.TopicProduceData(
            name=TOPIC, partition_data=[message.PartitionProduceData(index=0, records=batch)]
        )
        request = message(acks=ALL_REPLICAS, timeout_ms=WRITE_MS, topic_data=[data])
        async with connection(leader, self._client.settings) as opened:
            answer = await opened.ask(PRODUCE, request, version=PRODUCE_VERSION)
        _check(answer.responses[0].partition_responses[0].error_code, "WRITE")

    async def all(self) -> list[Fact]:
        """Everything that is stored now; nothing where there is no topic. Raises as `leader`."""
        leader = await self.leader()
        if leader is None:
            return []
        found: list[Fact] = []
        async with self.reading(leader) as reading:
            end = await _offset(reading.opened, LATEST)
            while reading.position < end:
                found += await reading.next(0)
        return found

    @asynccontextmanager
    async def reading(self, leader: Address, position: int | None = None) -> AsyncIterator[Reading]:
        """Read from a position, or from the start. Raises as `leader`."""
        async with connection(leader, self._client.settings) as opened:
            start = await _offset(opened, EARLIEST)
            yield Reading(opened, start if position is None else max(start, position))

    async def aclose(self) -> None:
        """Close what is kept open."""
        await self._client.aclose()


class Reading:
    """One way through the topic."""

    def __init__(self, opened: OwnConnection, position: int) -> None:
        self.opened = opened
        self.position = position
        """The offset that is read next."""

    async def next(self, wait_ms: int) -> list[Fact]:
        """What comes next; empty when nothing came in time. Raises as `leader`, RemoteProtocolError for bad bytes."""
        answer = await self.opened.ask(FETCH, self._request(wait_ms), version=FETCH_VERSION)
        entry = answer.responses[0].partitions[0]
        if entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.position = await _offset(self.opened, EARLIEST)
            return []
        _check(entry.error_code, "READ")
        data = memoryview(entry.records or b"")
        found: list[Fact] = []
        for batch in records.iter_batches(data):
            if batch.last_offset >= self.position and not batch.is_control:
                decoded = records.decode_records(data[batch.position : batch.end])
                found += [(each.key, each.value) for each in decoded if each.offset >= self.position]
            self.position = max(self.position, batch.last_offset + 1)
        return found

    def _request(self, wait_ms: int) -> Any:
        request = registry.message("FetchRequest")
        partition = request.FetchPartition(partition=0, fetch_offset=self.position, partition_max_bytes=FETCH_BYTES)
        return request(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[request.FetchTopic(topic=TOPIC, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )


async def _offset(opened: OwnConnection, timestamp: int) -> int:
    request = registry.message("ListOffsetsRequest")
    wanted = request.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    question = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=TOPIC, partitions=[wanted])])
    answer = await opened.ask(LIST_OFFSETS, question, version=LIST_OFFSETS_VERSION)
    entry = answer.topics[0].partitions[0]
    _check(entry.error_code, "DESCRIBE")
    if entry.offset < 0:
        raise RemoteProtocolError(f"{TOPIC}: ListOffsets answered with offset {entry.offset}")
    return int(entry.offset)


def _check(code: int, right: str) -> None:
    if code in _REFUSED:
        raise TopicRefused(f"the proxy's own identity may not {right} topic {TOPIC}")
    if code != ErrorCode.NONE:
        raise UpstreamLost(f"topic {TOPIC}: {error_name(code)}")
