"""Access to the topic `__proxy_views`: created with the first record, read from its start, appended to.

Rule: views/README.md 18. For one task at a time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from kafka_share_proxy.brokers import producer_messages, topic_log
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterConnection, connection
from kafka_share_proxy.brokers.internal_topics import InternalTopic, TopicUnsafe
from kafka_share_proxy.brokers.replaced import SILENT_S, unless_replaced
from kafka_share_proxy.brokers.topic_log import EARLIEST, LATEST
from kafka_share_proxy.durable.topic_guard import TopicGuard
from kafka_share_proxy.views.state_records import PARTITIONS, TOPIC
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

FETCH_BYTES = 1 << 20
"""Maximum bytes of one Fetch."""
WRITE_MS = 10_000
"""Milliseconds that the leader waits for the replicas of an append."""

T = TypeVar("T")
KeyValue = tuple[bytes | None, bytes | None]
"""Key and value of a record. A value of None deletes the key."""


class ViewTopic:
    """The topic, accessed through a separate client."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._topic = InternalTopic(client, TOPIC, PARTITIONS)

    async def leader(self) -> Address | None:
        """Return the leader, or None if the topic does not exist.

        Raises TopicRefused if the proxy may not see it, or it has another number of partitions; UpstreamLost or
        AuthenticationFailed if no broker responds, or there is no leader.
        """
        leaders = await self._topic.leaders()
        if leaders is None:
            return None
        address = leaders.address_of(0)
        if address is None:
            raise UpstreamLost(f"topic {TOPIC} has no leader")
        return address

    async def require_safe(self, guard: TopicGuard) -> None:
        """Check the settings of the topic. Raises TopicUnsafe if brokers delete what is stored, and as `leader`."""
        if guard.is_due:
            leaders = await self._topic.leaders()
            if leaders is not None:
                guard.judge(await self._topic.settings(leaders))
        if guard.unsafe:
            raise TopicUnsafe(guard.unsafe)

    async def create(self) -> None:
        """Create the topic, unless another proxy just has. Raises as `leader`."""
        await self._topic.create()

    async def end(self, leader: Address) -> int:
        """Return the end offset. Raises as `leader`."""

        async def send_request() -> int:
            async with connection(leader, self._client.settings) as connected:
                return await self.offset(connected, LATEST)

        return await self.unless_moved(leader, send_request)

    async def append(self, leader: Address, key_values: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append records with acks=all. Raises as `leader`."""
        now = time.time_ns() // 1_000_000
        batch = records.build_batch(0, [records.Record(key, value, timestamp=now) for key, value in key_values])
        request = producer_messages.produce(TOPIC, {0: batch}, timeout_ms=WRITE_MS)

        async def send_request() -> messages.ProduceResponse:
            async with connection(leader, self._client.settings) as connected:
                return await connected.send_request(
                    ApiKey.PRODUCE, request, version=producer_messages.PRODUCE_VERSION_MAX
                )

        response = await self.unless_moved(leader, send_request)
        self._topic.check(producer_messages.by_partition(response)[0].error_code, "WRITE")

    async def read_all(self) -> list[KeyValue]:
        """Return all records up to the present end, none without a topic. Raises as `leader`."""
        leader = await self.leader()
        if leader is None:
            return []
        key_values: list[KeyValue] = []
        async with self.reading(leader) as reading:
            end = await self.offset(reading.connected, LATEST)
            while reading.position < end:
                key_values += await reading.next(0)
        return key_values

    @asynccontextmanager
    async def reading(self, leader: Address, position: int | None = None) -> AsyncIterator[Reading]:
        """Open a sequential read from `position`, or from the start. Raises as `leader`."""
        async with AsyncExitStack() as stack:
            dial = partial(stack.enter_async_context, connection(leader, self._client.settings))
            connected = await self.unless_moved(leader, dial)
            start = await self.unless_moved(leader, partial(self.offset, connected, EARLIEST))
            yield Reading(self, connected, leader, start if position is None else max(start, position))

    async def offset(self, connected: ClusterConnection, timestamp: int) -> int:
        """Return the first or the end offset. `timestamp`: EARLIEST or LATEST. Raises as `leader`."""
        (entry,) = await topic_log.request_offsets(connected, TOPIC, [0], timestamp)
        self.check(entry.error_code, "DESCRIBE")
        if entry.offset < 0:
            raise RemoteProtocolError(f"{TOPIC}: ListOffsets returned offset {entry.offset}")
        return int(entry.offset)

    def check(self, code: int, right: str) -> None:
        """Raise the exception for an error code, TopicRefused if the proxy lacks the right."""
        self._topic.check(code, right)

    async def unless_moved(self, leader: Address, wait: Callable[[], Awaitable[T]], silent_s: float = SILENT_S) -> T:
        """Return the result of `wait`. Raises Replaced, an UpstreamLost, if another broker becomes the leader.

        `silent_s`: seconds until the leader is looked up the first time.
        """

        async def has_moved() -> bool:
            return await self.leader() not in (leader, None)

        return await unless_replaced(wait, has_moved, silent_s=silent_s, check_s=SILENT_S)

    async def aclose(self) -> None:
        await self._client.aclose()


class Reading:
    """A sequential read of the topic."""

    def __init__(self, topic: ViewTopic, connected: ClusterConnection, leader: Address, position: int) -> None:
        self._topic = topic
        self._leader = leader
        self.connected = connected
        self.position = position
        """The next offset to read."""

    async def next(self, wait_ms: int) -> list[KeyValue]:
        """Return the next records, none if no record arrived in time.

        Raises as `leader`, and RemoteProtocolError for bad bytes.
        """
        fetch = partial(
            topic_log.fetch,
            self.connected,
            TOPIC,
            {0: self.position},
            wait_ms=wait_ms,
            max_bytes=FETCH_BYTES,
            partition_bytes=FETCH_BYTES,
        )
        (entry,) = await self._topic.unless_moved(self._leader, fetch, wait_ms / 1000 + SILENT_S)
        if entry.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.position = await self._topic.offset(self.connected, EARLIEST)
            return []
        self._topic.check(entry.error_code, "READ")
        data = memoryview(entry.records or b"")
        key_values: list[KeyValue] = []
        for batch in records.iter_batches(data):
            if batch.last_offset >= self.position and not batch.is_control:
                decoded = records.decode_records(data[batch.position : batch.end])
                key_values += [(each.key, each.value) for each in decoded if each.offset >= self.position]
            self.position = max(self.position, batch.last_offset + 1)
        return key_values
