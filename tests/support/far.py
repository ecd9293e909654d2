"""A cluster, share groups at one proxy, clients at another: `ports.World` as seen from a proxy that owns nothing."""

from __future__ import annotations

from itertools import count
from typing import Any

from kafka_share_proxy.durable.memory_journal import MemoryJournal
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.edge import PeerEdge
from kafka_share_proxy.fleet.owner import PeerOwner
from kafka_share_proxy.fleet.peer_protocol import NONCE_BYTES, PeerProtocol
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served import services as shared_services
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests, ShareEdge
from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator
from kafka_share_proxy.sharegroups.services import FEATURE, build
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.ports import Reply, World, responded
from tests.support.scripted_cluster import Connection

SECRET = b"sixteen bytes ok"


class Wire:
    """A link in memory: messages of one end arrive at the other immediately, as bytes."""

    def __init__(self) -> None:
        self.ends = [
            PeerProtocol("edge:1", SECRET, b"e" * NONCE_BYTES, dials=True),
            PeerProtocol("owner:1", SECRET, b"o" * NONCE_BYTES, dials=False),
        ]
        for _ in range(3):
            for mine, other in (self.ends, self.ends[::-1]):
                assert not list(other.receive_data(mine.outgoing()))
        self.users: list[Any] = [None, None]
        self.sent: list[str] = []
        self.held: list[Any] | None = None
        """Messages to the edge that wait; None: they do not."""

    def to_owner(self, message: Any) -> None:
        self._pass(0, message)

    def to_edge(self, message: Any) -> None:
        if self.held is not None:
            self.held.append(message)
        else:
            self._pass(1, message)

    def release(self) -> None:
        held, self.held = self.held or [], None
        for message in held:
            self._pass(1, message)

    def _pass(self, end: int, message: Any) -> None:
        self.sent.append(type(message).__name__)
        for each in self.ends[1 - end].receive_data(self.ends[end].send(message)):
            self.users[1 - end].receive(each)

    def cut(self) -> None:
        for user in self.users:
            user.lost("cut")


class One:
    """A fleet with one other proxy, which owns everything."""

    def __init__(self) -> None:
        self.peer: PeerEdge | None = None

    @property
    def groups(self) -> set[str]:
        return set() if self.peer is None else self.peer.groups

    def owner(self, partition: int) -> PeerEdge | None:
        return self.peer

    def owners(self, partitions: Any) -> list[PeerEdge] | None:
        return None if self.peer is None else [self.peer]


class FarWorld(World):
    """`services` are the owner's; requests of clients come to `edge`."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        ours = self.services
        base = shared_services.build(
            limits=ours.limits,
            timers=self.timers,
            notes=ours.notes,
            book=AddressBook(9100, "proxy.example", lambda node_id, address: True),
            topology=ours.topology,
            versions=ours.versions,
        )
        self.edge = build(
            base, coordinator=ShareCoordinator(ours.coordinator.limits), options=ours.options, journal=MemoryJournal()
        )
        self.edge.gate.closing(self.edge.gate.all, ErrorCode.COORDINATOR_NOT_AVAILABLE, "elsewhere")
        self.generations = [1, 1]
        self.edge_fleet = One()
        edge: Any = self.edge
        edge.fleet = self.edge_fleet
        self.served = share_group_apis.served(self.edge)
        self.link()

    def link(self) -> None:
        """Make a new link between the two proxies."""
        self.wire = Wire()
        edges = {FEATURE: ShareEdge(self.edge)}
        self.carried_shares = CarriedShareRequests(self.services, share_group_apis.of_owner(self.services))
        self.carried = CarriedFeatures()
        self.carried.add(self.carried_shares, self.carried_shares)
        self.peer = PeerEdge(edges, self.timers, self.wire.to_owner, lambda: self.generations[0])
        self.owner = PeerOwner(
            self.services,
            self.carried,
            self.wire.to_edge,
            lambda: self.generations[1],
            _numbers,
        )
        self.wire.users = [self.peer, self.owner]
        self.edge_fleet.peer = self.peer

    def send(self, connection: Connection, key: int, version: int, request: Any) -> Reply:
        decoded = registry.request(key, version).decode(registry.request(key, version).encode(request))
        call = Call(key, version, next(self._correlation_ids), "test-client", decoded, connection)
        task: Task[Any] = Task(responded(self.served[key].handler, call), lambda task: None, connection)
        connection.tasks.append(task)
        task.start()
        return Reply(task, key, version)


_numbers = count(1 << 40)
