"""One run of one case: its connections, topics, groups and members, and the trail of what was sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.capabilities import Capabilities
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic, ClusterUnderTest, SetUpFailed
from kafka_share_proxy.conformance.suite.connection import PeerConnection
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.conformance.suite.expectations import Mismatch, NotOffered
from kafka_share_proxy.wire.errors import error_name
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import Address

AWAIT_S = 20.0
"""Seconds within which a condition must become true."""
PAUSE_S = 0.05
REPLICAS_MAX = 3
"""Replicas of a topic on a cluster of several nodes."""


class CaseRun:
    """Tools of the body of a case. Everything that it opens is closed at the end."""

    def __init__(self, cluster: ClusterUnderTest, capabilities: Capabilities) -> None:
        self.cluster = cluster
        self.capabilities = capabilities
        self.trail = Trail()
        self._shared_connections: dict[Address | None, PeerConnection] = {}
        self._opened: list[PeerConnection] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._brokers: dict[int, Address] = {}
        self._replicas: list[int] = []

    def at_end(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Await a function before the connections are closed, for example to leave a group."""
        self._closers.append(closer)

    async def aclose(self) -> None:
        """Let members leave and close all connections."""
        for closer in reversed(self._closers):
            await closer()
        for connection in self._opened:
            await connection.aclose()

    # Connections

    async def connect(self, address: Address | None = None) -> PeerConnection:
        """Return a new connection, by default to a bootstrap server."""
        dialling = self.cluster.dialling
        opened = await (
            dialling.connect_bootstrap(self.trail) if address is None else dialling.connect(address, self.trail)
        )
        self._opened.append(opened)
        return opened

    async def connection(self, address: Address | None = None) -> PeerConnection:
        """Return the connection to an address that requests without one of their own share."""
        if address not in self._shared_connections:
            self._shared_connections[address] = await self.connect(address)
        return self._shared_connections[address]

    async def node(self, node_id: int) -> Address:
        """Return the address of a broker by its node id."""
        if node_id not in self._brokers:
            self._brokers = await self.cluster.brokers(await self.connection())
        return self._brokers[node_id]

    async def nodes(self) -> list[int]:
        """Return the ids of all brokers."""
        return sorted(await self.cluster.brokers(await self.connection()))

    async def leader(self, topic: CaseTopic, partition: int = 0) -> PeerConnection:
        """Return the shared connection to the leader of a partition."""
        return await self.connection(await self.node(topic.leaders[partition]))

    async def coordinator(self, key: str, key_type: int = 0) -> PeerConnection:
        """Return the shared connection to the coordinator of a group, or of a transactional id (1)."""
        return await self.connection(await self.cluster.coordinator(await self.connection(), key, key_type))

    async def request(
        self, api: str, on: PeerConnection | None = None, version: int | None = None, **values: Any
    ) -> Any:
        """Send a request, by default on the shared bootstrap connection and in the version of `cluster.version`."""
        chosen = self.cluster.version(api, version)
        if version is not None and chosen != version:
            raise NotOffered(f"{api} version {version} is not offered")
        return await (on or await self.connection()).request(api, chosen, **values)

    # Topics and records

    def name(self, kind: str) -> str:
        """Return a name that nothing else uses."""
        return self.cluster.name(kind)

    def group(self) -> str:
        """Return the name of a group, which is deleted at the end of the run."""
        name = self.name("group")
        self.cluster.groups.add(name)
        return name

    async def topic(
        self,
        partitions: int = 1,
        count: int = 0,
        configs: Mapping[str, str] | None = None,
        name: str | None = None,
        replicas: Sequence[Sequence[int]] = (),
    ) -> CaseTopic:
        """Create a topic, by default with a new name; `count` records are in one batch in each partition."""
        topic_name = name or self.name("topic")
        placed = replicas or [await self._same_nodes()] * partitions
        chosen = placed if all(placed) else ()
        topic = await self.cluster.create_topic(await self.connection(), topic_name, partitions, configs, chosen)
        for partition in topic.partitions:
            await self._await_leader(topic, partition)
            if count:
                await self.produce(topic, count, partition=partition)
        return topic

    async def _same_nodes(self) -> list[int]:
        """Return the replicas of all topics of this run (conformance/README.md rule 44). Empty: the cluster's."""
        if "several-nodes" in self.capabilities.missing:
            return []
        if not self._replicas:
            nodes = await self.nodes()
            first = secrets.randbelow(len(nodes))
            self._replicas = [*nodes[first:], *nodes[:first]][:REPLICAS_MAX]
        return self._replicas

    async def _await_leader(self, topic: CaseTopic, partition: int) -> None:
        async def has_log() -> bool:
            return await self.end_offset(topic, partition) >= 0

        await self.until(has_log, f"the leader of partition {partition}")

    async def produce(self, topic: CaseTopic, *batches: int | Sequence[bytes | None], partition: int = 0) -> int:
        """Append batches, each a number of records or their values. Return the base offset. Raises SetUpFailed."""
        first = -1
        for batch in batches:
            values = [b"record %d" % number for number in range(batch)] if isinstance(batch, int) else batch
            now = int(time.time() * 1000)
            data = records.build_batch(0, [records.Record(value=value, timestamp=now) for value in values])
            response = await self.append(topic, data, partition)
            if response.error_code:
                raise SetUpFailed(f"cannot produce: {error_name(response.error_code)}")
            first = response.base_offset if first < 0 else first
        return first

    async def append(
        self,
        topic: CaseTopic,
        data: bytes | None,
        partition: int = 0,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        version: int | None = None,
    ) -> Any:
        """Send a Produce request with these bytes and return the response of the partition."""
        entry = {"index": partition, "records": data}
        response = await self.request(
            "Produce",
            await self.leader(topic, partition),
            version,
            acks=acks,
            timeout_ms=10_000,
            transactional_id=transactional_id,
            topic_data=[{"name": topic.name, "topic_id": topic.topic_id, "partition_data": [entry]}]
            if version is not None and version >= 13
            else [{"name": topic.name, "partition_data": [entry]}],
        )
        return response.responses[0].partition_responses[0]

    async def end_offset(self, topic: CaseTopic, partition: int = 0, timestamp: int = -1, isolation: int = 0) -> int:
        """Return an offset by ListOffsets: -1 latest, -2 earliest; -1 if the leader returns an error."""
        topics = [{"name": topic.name, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}]
        response = await self.request(
            "ListOffsets",
            await self.leader(topic, partition),
            replica_id=-1,
            isolation_level=isolation,
            topics=topics,
        )
        entry = response.topics[0].partitions[0]
        return -1 if entry.error_code else int(entry.offset)

    async def delete_records(self, topic: CaseTopic, before: int, partition: int = 0) -> None:
        """Move the log start offset. Raises SetUpFailed."""
        topics = [{"name": topic.name, "partitions": [{"partition_index": partition, "offset": before}]}]
        response = await self.request(
            "DeleteRecords", await self.leader(topic, partition), topics=topics, timeout_ms=10_000
        )
        code = response.topics[0].partitions[0].error_code
        if code:
            raise SetUpFailed(f"cannot delete records: {error_name(code)}")

    async def until(self, condition: Callable[[], Awaitable[Any]], awaited: str, limit_s: float | None = None) -> Any:
        """Return the first true value of the condition. Raises Mismatch after `limit_s`, by default AWAIT_S."""
        limit_s = AWAIT_S if limit_s is None else limit_s
        with trio.move_on_after(limit_s):
            while True:
                value = await condition()
                if value:
                    return value
                await trio.sleep(PAUSE_S)
        raise Mismatch(awaited, f"within {limit_s:.0f} s", "not in that time")


def values_of(data: Any) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of all records in a records field, without markers of transactions."""
    view = memoryview(data or b"")
    return [
        (record.offset, record.value)
        for batch in records.iter_batches(view)
        if not batch.is_control
        for record in records.decode_records(view[batch.position : batch.end])
    ]


def spans_of(data: Any) -> list[tuple[int, int, int]]:
    """Return (base offset, last offset, number of records) of all batches in a records field."""
    view = memoryview(data or b"")
    return [(batch.base_offset, batch.last_offset, batch.records_count) for batch in records.iter_batches(view)]
