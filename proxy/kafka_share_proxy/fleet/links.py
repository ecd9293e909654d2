"""Links between the proxies of a fleet, and the choice of the link for a request.

Rules: fleet/README.md 1, 6, 13 and 16.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import trio

from kafka_share_proxy.brokers import dialling
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.edge import PeerEdge
from kafka_share_proxy.fleet.group_owners import Peer
from kafka_share_proxy.fleet.moved_clients import Admit, MovedClients, path_of
from kafka_share_proxy.fleet.owner import PeerOwner
from kafka_share_proxy.fleet.peer_link import HANDSHAKE_S, LinkUser, PeerLink, next_common
from kafka_share_proxy.fleet.peer_protocol import NONCE_BYTES, PeerProtocol
from kafka_share_proxy.fleet.unproven_links import UNPROVEN_MAX, UnprovenLinks
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.handshakes import HandshakeLimits, Handshakes
from kafka_share_proxy.loop.interfaces import Notes, Transport
from kafka_share_proxy.loop.lasting_trouble import LastingTrouble
from kafka_share_proxy.loop.listeners import Listener, bind, bind_local
from kafka_share_proxy.loop.reactor import Reactor, ReactorTimer
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.loop.transports import PlainTransport, TlsTransport
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.values import Address

DIAL_S = 2.0
"""Maximum seconds for a TCP connection to another proxy."""
RETRY_MIN_S, RETRY_MAX_S = 0.05, 1.0
"""Shortest and longest delay in seconds before a link is dialled again."""
RETRY_LOCAL_MAX_S = 0.1
"""The longest to a proxy on this machine, which costs little: clients wait for a worker that is started again."""
LINKS_MAX = 200
"""Maximum number of links from members of the fleet."""
SEND_GROUPS_S = 0.5
"""Seconds between two notifications about groups."""
RECENT_S = 5.0
"""Seconds for which a group counts as recent that no member reports: its new owner has not begun to load it yet."""
FIRST_CONNECTION_ID = 1 << 40
"""First id of remote connections, above every id of this process."""


class LinkTable(Protocol):
    """Table of owners: `ownership_group.Membership`."""

    elsewhere: dict[int, str]
    """State partition -> address of its owner."""
    peers: frozenset[str]
    """Addresses of the other members."""

    @property
    def generation(self) -> int: ...

    def expect_change(self) -> None:
        """Notice a rebalance soon: a member rejoins, or the link to it has ended."""


class LinkTls(NamedTuple):
    """TLS contexts of links. Both sides verify each other."""

    dials: TlsContext
    dialled: TlsContext
    server_name: str | None = None
    """None: the host that is dialled."""


class LocalLinks(NamedTuple):
    """Unix sockets of proxies on this machine, which are used instead of TCP and without TLS."""

    listen: str
    """Path at which this proxy accepts others."""
    paths: Mapping[str, str]
    """Path of each possible member by address."""


class FleetLinks:
    """Links of this proxy. See group_owners.Fleet."""

    def __init__(
        self,
        reactor: Reactor,
        services: Services,
        carried: CarriedFeatures,
        table: LinkTable,
        notes: Notes,
        *,
        address: str,
        secret: bytes | None,
        tls: LinkTls | None = None,
        local: LocalLinks | None = None,
    ) -> None:
        self._reactor = reactor
        self._services = services
        self._carried = carried
        self._table = table
        self._notes = notes
        self._address = address
        self._secret = secret
        self._tls = tls
        self._local = local
        self._clients = MovedClients(reactor, notes)
        self._edges: dict[str, tuple[PeerLink, PeerEdge]] = {}
        """Address -> the link dialled to it."""
        self._dialling: dict[str, trio.CancelScope] = {}
        self._accepted: dict[PeerLink, PeerOwner] = {}
        self._unproven = UnprovenLinks()
        self._handshakes: Handshakes | None = None
        if tls is not None:
            limits = HandshakeLimits(UNPROVEN_MAX, UNPROVEN_MAX, HANDSHAKE_S, "UNPROVEN_MAX", "UNPROVEN_MAX")
            self._handshakes = Handshakes(reactor, tls.dialled, limits, notes)
        self._listeners: tuple[Listener, ...] = ()
        self._connection_ids = count(FIRST_CONNECTION_ID)
        self._groups: dict[str, None] = {}
        """Groups that other members report, always the same dict."""
        self._ended: dict[str, float] = {}
        """Group -> time at which the last member ceased to report it."""
        self._last_reported: dict[str, set[str]] = {}
        """Groups of members whose link ended, until a proxy reports otherwise."""
        self._table_changed = trio.Event()
        self._alarm: ReactorTimer | None = None

    # group_owners.Fleet

    @property
    def groups(self) -> Mapping[str, None]:
        return self._groups

    @property
    def recent_groups(self) -> set[str]:
        """Return the groups that other members report, or reported within RECENT_S."""
        self._forget_ended()
        return self._groups.keys() | self._ended.keys()

    @property
    def members(self) -> Mapping[str, Peer | None]:
        linked: dict[str, Peer] = {address: edge for address, (_, edge) in self._edges.items()}
        return {address: linked.get(address) for address in self._table.peers}

    def owner(self, partition: int) -> Peer | None:
        link = self._edges.get(self._table.elsewhere.get(partition, ""))
        return None if link is None else link[1]

    def owners(self, partitions: Iterable[int]) -> list[Peer] | None:
        owners_by_id: dict[int, Peer] = {}
        for partition in partitions:
            owner = self.owner(partition)
            if owner is None:
                return None
            owners_by_id[id(owner)] = owner
        return list(owners_by_id.values())

    # Status

    @property
    def linked(self) -> list[str]:
        """Addresses of the members that this proxy has links to."""
        return sorted(self._edges)

    @property
    def has_far(self) -> bool:
        """True if a linked proxy is not a worker of this proxy's supervisor."""
        return any(self._local_path(address) is None for address in self._edges)

    @property
    def missing(self) -> list[str]:
        """Addresses of the members without a link."""
        return sorted(self._table.peers - self._edges.keys())

    @property
    def requests_waiting(self) -> int:
        """Number of requests that other proxies serve now."""
        return sum(edge.waiting for _, edge in self._edges.values())

    @property
    def far_clients(self) -> int:
        """Number of clients of other proxies that are served here."""
        return sum(owner.connections for owner in self._accepted.values())

    # Running

    def listen(self, address: Address) -> int:
        """Accept other proxies at an address. Return the port, for callers that passed 0. Raises OSError."""
        sockets = bind(address.host, address.port)
        opened = [Listener(self._reactor, sock, self._accept, self._report_refused) for sock in sockets]
        self._listeners += tuple(opened)
        return opened[0].port

    def listen_locally(self) -> None:
        """Accept proxies on this machine, if there may be some. Raises OSError."""
        if self._local is not None:
            sock = bind_local(self._local.listen)
            self._listeners += (Listener(self._reactor, sock, self._accept_local, self._report_refused),)

    def admit_clients(self, admit: Admit) -> None:
        """Accept clients of other proxies on this machine. Raises OSError."""
        if self._local is not None:
            self._clients.listen(path_of(self._local.listen), admit)

    def move_away(self, number: int, connection: ForwardedConnection) -> bool:
        """Send a connection between two requests to an owner on this machine. False if it stays.

        `number`: that of this worker. Workers that are replaced together have consecutive ones, so each sends to
        another owner, the one at its place.
        """
        owners = sorted(set(self._table.elsewhere.values()), key=lambda name: (len(name), name))
        paths = [path for path in map(self._local_path, owners) if path is not None]
        return bool(paths) and self._clients.send_idle(path_of(paths[number % len(paths)]), connection)

    def give(self, path: str, connection: ForwardedConnection) -> bool:
        """Send a connection between two requests to the proxy that listens at `path`. False if it stays."""
        return self._clients.send_idle(path_of(path), connection, may_stay=True)

    def announce_rejoin(self) -> None:
        """Let the other members notice soon that this proxy rejoins their group."""
        for link in (*(link for link, _ in self._edges.values()), *self._accepted):
            link.ping(rejoins=True)

    def check_soon(self) -> None:
        """Follow a new table."""
        self._table_changed.set()

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._send_groups()
                while True:
                    self._table_changed = trio.Event()
                    self._follow(nursery)
                    await self._table_changed.wait()
        finally:
            self.close()

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._clients.close()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._handshakes is not None:
            self._handshakes.close()
        edges = [link for link, _ in self._edges.values()]
        for link in (*edges, *self._accepted, *self._unproven.links()):
            link.close("the proxy stops")

    def _follow(self, nursery: trio.Nursery) -> None:
        members = self._table.peers
        for address in self._dialling.keys() - members:
            self._dialling.pop(address).cancel()
        for address in self._edges.keys() - members:
            self._edges[address][0].close("it has left the fleet")
        for address in self._last_reported.keys() - members:
            del self._last_reported[address]
        self._gather_groups()
        for address in members - self._dialling.keys():
            scope = self._dialling[address] = trio.CancelScope()
            nursery.start_soon(self._keep_linked, address, scope)
        self._carried.links_changed()

    async def _keep_linked(self, address: str, scope: trio.CancelScope) -> None:
        delay = RETRY_MIN_S
        unreached = LastingTrouble(self._notes, "peer-unreachable", "peer-reached", peer=address)
        with scope:
            while True:
                try:
                    sock = await self._dial(address)
                except OSError as error:
                    unreached.happened(str(error))
                else:
                    unreached.ended()
                    if await self._run_link(address, sock):
                        delay = RETRY_MIN_S
                await trio.sleep(delay)
                delay = min(2 * delay, RETRY_MAX_S if self._local_path(address) is None else RETRY_LOCAL_MAX_S)

    async def _dial(self, address: str) -> socket.socket:
        """Return a connection. Raises OSError."""
        path = self._local_path(address)
        return await (dialling.connect(_parsed(address), DIAL_S) if path is None else dialling.connect_locally(path))

    def _local_path(self, address: str) -> str | None:
        return None if self._local is None else self._local.paths.get(address)

    async def _run_link(self, address: str, sock: socket.socket) -> bool:
        """Keep a link until it ends. Return True if the other side accepted it."""
        over = trio.Event()
        was_good = False
        path = self._local_path(address)

        def established(link: PeerLink) -> LinkUser:
            nonlocal was_good
            was_good = True
            edge = PeerEdge(
                self._carried.edges(),
                self._services.timers,
                link.send,
                lambda: self._table.generation,
                link,
                partial(self._on_groups, address),
                None if path is None else partial(self._clients.send, path_of(path)),
            )
            self._edges[address] = link, edge
            self._carried.links_changed()
            return edge

        def ended(link: PeerLink) -> None:
            if address in self._edges and self._edges[address][0] is link:
                _, edge = self._edges.pop(address)
                self._last_reported[address] = edge.groups | self._last_reported.get(address, set())
                self._gather_groups()
                self._table.expect_change()
            over.set()

        transport = self._dialled_transport(sock, address)
        link = self._link(transport, dials=True, established=established, ended=ended)
        try:
            await over.wait()
        finally:
            link.close("no longer needed")
        return was_good

    def _accept(self, sock: socket.socket, host: str) -> None:
        if self._handshakes is None:
            self._start_accepted(host, PlainTransport(self._reactor, sock))
        else:
            self._handshakes.begin(sock, host, partial(self._start_accepted, host), self._report_refused)

    def _accept_local(self, sock: socket.socket, host: str) -> None:
        self._start_accepted(host, PlainTransport(self._reactor, sock))

    def _start_accepted(self, host: str, transport: Transport) -> None:
        link_to_close = self._unproven.link_to_close(host)
        if link_to_close is not None:
            link_to_close.close("it has not proven its membership, and other links wait")

        def established(link: PeerLink) -> LinkUser:
            self._unproven.remove(link)
            if len(self._accepted) >= LINKS_MAX:
                raise RemoteProtocolError(f"more than {LINKS_MAX} links of the fleet")
            owner = PeerOwner(
                self._services, self._carried, link.send, lambda: self._table.generation, self._connection_ids, link
            )
            self._accepted[link] = owner
            owner.send_groups()
            return owner

        link = self._link(transport, dials=False, established=established, ended=self._remove_accepted)
        if not link.closed:
            self._unproven.add(link, host)

    def _remove_accepted(self, link: PeerLink) -> None:
        self._accepted.pop(link, None)
        self._unproven.remove(link)

    def _link(
        self,
        transport: Transport,
        *,
        dials: bool,
        established: Callable[[PeerLink], LinkUser],
        ended: Callable[[PeerLink], None],
    ) -> PeerLink:
        """Begin a link. `dials`: False if the other proxy dialled it."""
        return PeerLink(
            self._reactor,
            transport,
            PeerProtocol(self._address, self._secret, os.urandom(NONCE_BYTES), dials=dials),
            self._notes,
            lambda: self._table.generation,
            established,
            ended,
            self._table.expect_change,
        )

    def _dialled_transport(self, sock: socket.socket, address: str) -> Transport:
        if self._tls is None or self._local_path(address) is not None:
            return PlainTransport(self._reactor, sock)
        return TlsTransport(
            self._reactor,
            sock,
            self._tls.dials.current,
            server_side=False,
            server_hostname=self._tls.server_name or _parsed(address).host,
            handshake_timeout_s=HANDSHAKE_S,
        )

    def _report_refused(self, error: Exception) -> None:
        self._notes("peer-refused", peer="", reason=str(error))

    # Groups

    def _on_groups(self, address: str) -> None:
        self._last_reported.pop(address, None)
        self._gather_groups()

    def _gather_groups(self) -> None:
        linked = (edge.groups for _, edge in self._edges.values())
        groups = frozenset().union(*linked, *self._last_reported.values())
        self._forget_ended()
        self._ended.update(dict.fromkeys(self._groups.keys() - groups, self._reactor.now()))
        for group in groups & self._ended.keys():
            del self._ended[group]
        self._groups.clear()
        self._groups.update(dict.fromkeys(groups))

    def _forget_ended(self) -> None:
        since = self._reactor.now() - RECENT_S
        self._ended = {group: ended for group, ended in self._ended.items() if ended >= since}

    def _send_groups(self) -> None:
        """Send changed groups, measure the load, and repeat. As a task of Trio it would switch threads each time."""
        for owner in list(self._accepted.values()):
            owner.send_groups()
        self._clients.measure()
        self._alarm = self._reactor.call_at(next_common(self._reactor.now(), SEND_GROUPS_S), self._send_groups)


def _parsed(text: str) -> Address:
    """Raises OSError if the address is invalid."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise OSError(f"{text!r} is no address")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
