"""Audit events in a topic of the cluster, written under the proxy's own identity. The topic must exist.

Delivery is at least once: a batch without a response is sent again, and (proxy_id, seq) identifies the duplicates. A
batch that cannot be written for GIVE_UP_S is dropped and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import count

import trio

from kafka_share_proxy.brokers import producer_messages
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.open_nodes import OpenNodes
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import TopicPartition

BUFFER_BYTES = 16 << 20
"""Maximum bytes of queued lines. Further lines are dropped."""
BATCH_BYTES = 500_000
"""Maximum bytes of lines in one record batch. Brokers accept 1 MiB by default."""
RETRY_S = 1.0
GIVE_UP_S = 30.0
WRITE_TIMEOUT_MS = 10_000


class AuditTopic:
    """Producer of lines, one batch after the other, to the topic's partitions in rotation."""

    name = "topic"

    def __init__(self, topic: str, client: ClusterClient, notes: Notes) -> None:
        """Set up without I/O."""
        self._topic = topic
        self._nodes = OpenNodes(client)
        self._notes = notes
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._lines_queued = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self._rotation = count()
        self.dropped = 0
        """The queue was full or the brokers did not accept the events in time."""

    def offer(self, lines: Sequence[bytes]) -> None:
        """Queue these lines for writing."""
        size = sum(map(len, lines))
        if self._bytes + size > BUFFER_BYTES:
            self.dropped += len(lines)
            return
        self._waiting.extend(lines)
        self._bytes += size
        self._idle = trio.Event() if self._idle.is_set() else self._idle
        self._lines_queued.set()

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                await self._lines_queued.wait()
                self._lines_queued = trio.Event()
                while self._waiting:
                    await self._append(self._take())
                self._idle.set()
        finally:
            with trio.CancelScope(shield=True):
                await self._nodes.aclose()
                await self._nodes.client.aclose()

    async def written(self) -> None:
        """Wait until all queued lines are processed."""
        await self._idle.wait()

    def _take(self) -> list[bytes]:
        batch, size = list[bytes](), 0
        while self._waiting and (not batch or size + len(self._waiting[0]) <= BATCH_BYTES):
            batch.append(self._waiting.popleft())
            size += len(batch[-1])
        self._bytes -= size
        return batch

    async def _append(self, lines: Sequence[bytes]) -> None:
        now = time.time_ns() // 1_000_000
        line_records = [records.Record(value=line.rstrip(b"\n"), timestamp=now) for line in lines]
        batch = records.build_batch(0, line_records)
        give_up = trio.current_time() + GIVE_UP_S
        while True:
            try:
                await self._produce(batch)
            except ProxyError as error:
                self._nodes.forget_leaders()
                await self._nodes.aclose()
                if trio.current_time() >= give_up:
                    self.dropped += len(lines)
                    self._notes("audit-not-written", topic=self._topic, reason=str(error))
                    return
                await trio.sleep(RETRY_S)
            else:
                return

    async def _produce(self, batch: bytes) -> None:
        partitions = await self._nodes.partitions_with_leader(self._topic)
        if not partitions:
            raise UpstreamLost(f"the audit topic {self._topic} does not exist or has no leader")
        place = TopicPartition(self._topic, partitions[next(self._rotation) % len(partitions)])
        request = producer_messages.produce(place.topic, {place.partition: batch}, timeout_ms=WRITE_TIMEOUT_MS)
        version = producer_messages.PRODUCE_VERSION_MAX
        response = await self._nodes.to_leader(place, ApiKey.PRODUCE, request, version)
        code = producer_messages.by_partition(response)[place.partition].error_code
        if code != ErrorCode.NONE:
            raise UpstreamLost(f"{place.topic}-{place.partition}: {error_name(code)}")
