"""Brokers of the cluster in one process (conformance/target), reached in memory by the proxy's own connections.

The cluster's clock is Trio's, so that tests may jump. Faults, handlers and the state of the cluster are the test's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import trio
import trio.testing
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.conformance.judge.judge import Judge
from kafka_share_proxy.conformance.target import served_apis
from kafka_share_proxy.conformance.target.clock import Clock
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.connection import TargetConnection
from kafka_share_proxy.conformance.target.faults import Fault, FaultPlan
from kafka_share_proxy.conformance.target.fetch_sessions import FetchSessions
from kafka_share_proxy.conformance.target.interfaces import ClientPeer
from kafka_share_proxy.conformance.target.partition_log import PartitionLog
from kafka_share_proxy.conformance.target.request_serving import ServedCluster
from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import Record
from kafka_share_proxy.wire.values import Address

WALL_MS = 1_700_000_000_000
"""Wall time when Trio's clock is 0."""
COMPACTED = {"cleanup.policy": "compact"}
NODE, OTHER_NODE = 1, 2


class TargetBrokers:
    """Nodes, of which the first one leads the topics that the test makes."""

    def __init__(
        self, nursery: trio.Nursery, users: Mapping[str, str] | None = None, *, nodes: int = 2, wall_ms: int = WALL_MS
    ) -> None:
        self.nursery = nursery
        clock = Clock(wall_ms + round(trio.current_time() * 1000))
        self.target = TargetCluster(nodes, clock, seed=1)
        self.target.addresses.update({node: (f"b{node}", 9092) for node in self.target.node_ids})
        served_apis.offer(self.target, served_apis.SASL_VERSIONS if users else {})
        self.faults = FaultPlan()
        self.handlers = {int(api.key): api.handle for api in served_apis.APIS}
        self.requested: list[int] = []
        """API keys, in order."""
        self.down: set[int] = set()
        """Nodes that refuse connections."""
        self.unreachable: set[int] = set()
        """Nodes that do not respond to a dial."""
        self.dialled: list[int] = []
        """Node ids, in order."""
        self.lost: set[int] = set()
        """Nodes from which nothing arrives any longer."""
        self.served = ServedCluster(
            cluster=self.target,
            handlers=self.handlers,
            judge=Judge(self.target.offered, rules=()),
            faults=self.faults,
            users=dict(users or {}),
            before_request=[self._before],
        )
        self._connections: set[TargetConnection] = set()
        self._numbers = 0
        nursery.start_soon(self.target.run)

    async def _before(self, key: int, node_id: int, client_id: str) -> None:
        self.requested.append(key)
        if node_id in self.lost:
            await trio.sleep_forever()

    # Connections

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Connect in memory (see ClusterClientSettings.connect)."""
        await trio.lowlevel.checkpoint()
        nodes = [node for node, address in self.target.addresses.items() if address == (host, port)]
        self.dialled += nodes
        if self.unreachable.intersection(nodes):
            await trio.sleep_forever()
        if self.down.issuperset(nodes):
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self._serve, nodes[0], theirs)
        return ours

    async def listen(self) -> Address:
        """Serve the first node on a free port of this machine, which it names as its address."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.target.addresses[NODE] = listeners[0].socket.getsockname()[:2]
        self.nursery.start_soon(trio.serve_listeners, partial(self._serve, NODE), listeners)
        return self.address(NODE)

    async def _serve(self, node_id: int, stream: trio.abc.Stream) -> None:
        connection = TargetConnection(stream, self.served, self.peer(node_id))
        self._connections.add(connection)
        await connection.run(print)
        self._connections.discard(connection)
        assert not self.served.failures, self.served.failures

    def peer(self, node_id: int) -> ClientPeer:
        self._numbers += 1
        return ClientPeer(self._numbers, node_id, "127.0.0.1")

    def leave(self, *nodes: int) -> None:
        """Let nodes (without argument, all) close their connections and refuse new ones, until `come_back`."""
        self.down.update(nodes or self.target.node_ids)
        for connection in tuple(self._connections):
            if connection.node_id in self.down:
                connection.close()

    def come_back(self) -> None:
        """Let every node respond again."""
        self.down.clear()
        self.lost.clear()
        self.unreachable.clear()

    @property
    def is_away(self) -> bool:
        """True if no node accepts connections."""
        return self.down.issuperset(self.target.node_ids)

    @property
    def settings(self) -> ClusterClientSettings:
        return ClusterClientSettings(connect=self.connect)

    def client(self, pinned: Mapping[int, Address] | None = None) -> ClusterClient:
        """Return the proxy's own client of this cluster. `pinned`: addresses that override the advertised ones."""
        return ClusterClient([self.address(node) for node in self.target.node_ids], self.settings, pinned)

    def address(self, node_id: int) -> Address:
        return Address(*self.target.addresses[node_id])

    # What a test does to the cluster

    def make(self, name: str, partitions: int = 1, settings: Mapping[str, str] = COMPACTED) -> HostedTopic:
        """Create a topic, or create it anew."""
        if self.target.topics.with_name(name) is not None:
            self.target.delete_topic(name)
        return self.target.add_topic(name, [list(self.target.node_ids)] * partitions, dict(settings))

    def topic(self, name: str) -> HostedTopic:
        hosted = self.target.topics.with_name(name)
        assert hosted is not None, f"there is no topic {name}"
        return hosted

    def log(self, name: str, partition: int = 0) -> PartitionLog:
        return self.topic(name).partitions[partition].log

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Replace the settings of a topic."""
        self.topic(name).configs.replace(settings)

    def move_leaders(self, node_id: int) -> None:
        """Let a node lead everything."""
        for name, topic in self.target.topics.by_name.items():
            for partition in topic.partitions:
                self.target.move_leader(name, partition.index, node_id)

    def evict_fetch_sessions(self) -> None:
        for node_id in self.target.node_ids:
            slots = self.target.settings.fetch_session_slots
            self.target.fetch_sessions[node_id] = FetchSessions(slots, self.target.seeded)

    def refuse(self, key: int, code: ErrorCode) -> int:
        """Respond to every request of an API with an error. Return the number of the fault."""
        return self.faults.add(Fault(api=key, error=code, count=None))

    def write(self, name: str, partition: int, written: list[Record], producer_id: int = -1, epoch: int = -1) -> int:
        """Append a batch, also of a replaced producer. Return its base offset."""
        data = records.build_batch(0, written, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        hosted = self.topic(name).partitions[partition]
        offset = hosted.log.append(data, records.read_header(data), hosted.leader_epoch)
        hosted.changed.notify()
        return offset

    def key_values(self, name: str) -> list[tuple[bytes | None, bytes | None]]:
        """Return key and value of every record of the first partition."""
        return [(record.key, record.value) for record in self.read(name)]

    def read(self, name: str, partition: int = 0) -> list[Record]:
        """Return all records of a partition."""
        return [record for batch in self.log(name, partition).batches for record in records.decode_records(batch.data)]
