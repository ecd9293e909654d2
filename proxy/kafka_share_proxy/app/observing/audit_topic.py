"""Audit events in a topic of the cluster, written under the proxy's own identity. The topic must exist.

Delivery is at least once: a batch without a response is sent again, and (proxy_id, seq) identifies the duplicates. A
batch that cannot be written for GIVE_UP_S is dropped and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count

import trio

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings, ClusterConnection, open_connection
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, UpstreamLost, error_name
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

PRODUCE_VERSION_MAX = 12
"""Last version with topic names; v13 has topic ids."""

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

    def __init__(
        self,
        topic: str,
        client: ClusterClient,
        settings: ClusterClientSettings,
        nodes: Mapping[int, Address],
        notes: Notes,
    ) -> None:
        """Set up without I/O. `nodes`: addresses of brokers that override the advertised ones."""
        self._topic = topic
        self._client = client
        self._settings = settings
        self._nodes = nodes
        self._notes = notes
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._lines_queued = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self._rotation = count()
        self._leaders: list[tuple[int, Address]] = []
        self._open: dict[Address, ClusterConnection] = {}
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
                await self._hang_up()
                await self._client.aclose()

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
        made = [records.Record(value=line.rstrip(b"\n"), timestamp=now) for line in lines]
        batch = records.build_batch(0, made)
        give_up = trio.current_time() + GIVE_UP_S
        while True:
            try:
                await self._produce(batch)
            except ProxyError as error:
                await self._hang_up()
                if trio.current_time() >= give_up:
                    self.dropped += len(lines)
                    self._notes("audit-not-written", topic=self._topic, reason=str(error))
                    return
                await trio.sleep(RETRY_S)
            else:
                return

    async def _produce(self, batch: bytes) -> None:
        if not self._leaders:
            await self._find_leaders()
        partition, address = self._leaders[next(self._rotation) % len(self._leaders)]
        if address not in self._open:
            self._open[address] = await open_connection(address, self._settings)
        opened = self._open[address]
        message = messages.ProduceRequest
        data = message.TopicProduceData(
            name=self._topic, partition_data=[message.PartitionProduceData(index=partition, records=batch)]
        )
        version = min(PRODUCE_VERSION_MAX, opened.versions.ranges.get(ApiKey.PRODUCE, (0, PRODUCE_VERSION_MAX))[1])
        response = await opened.send_request(
            ApiKey.PRODUCE, message(acks=-1, timeout_ms=WRITE_TIMEOUT_MS, topic_data=[data]), version=version
        )
        code = response.responses[0].partition_responses[0].error_code
        if code != ErrorCode.NONE:
            raise UpstreamLost(f"{self._topic}-{partition}: {error_name(code)}")

    async def _find_leaders(self) -> None:
        """Look up the leaders of the partitions. Raises UpstreamLost."""
        metadata, _ = await self._client.metadata([self._topic])
        audit_topic = next(topic for topic in metadata.topics if topic.name == self._topic)
        if audit_topic.error_code != ErrorCode.NONE:
            raise UpstreamLost(f"the audit topic {self._topic}: {error_name(audit_topic.error_code)}")
        brokers = {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers} | dict(self._nodes)
        leaders = [(part.partition_index, brokers.get(part.leader_id)) for part in audit_topic.partitions]
        self._leaders = [(partition, address) for partition, address in leaders if address is not None]
        if not self._leaders:
            raise UpstreamLost(f"the audit topic {self._topic} has no leader")

    async def _hang_up(self) -> None:
        self._leaders = []
        opened, self._open = self._open, {}
        for connection in opened.values():
            await connection.aclose()
