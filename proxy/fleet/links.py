"""The links between the proxies of a fleet: who is linked with whom, and to whom a request goes.

Theory of operation. Every proxy listens for others and says where in the group of proxies (`owners.Membership`). Each
dials every other member that the table names: over the link it dialled a proxy is the edge (`peer_edge`), over a link
that was dialled by another it is the owner (`peer_owner`). A link that ends is dialled anew as long as the table names
its other end.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import trio

from proxy.brokers import dialling
from proxy.fleet.carried import CarriedFeatures
from proxy.fleet.edge import PeerEdge
from proxy.fleet.group_owners import Peer
from proxy.fleet.owner import PeerOwner
from proxy.fleet.peer_link import HANDSHAKE_S, PeerLink, User
from proxy.fleet.peer_protocol import NONCE_BYTES, PeerProtocol
from proxy.fleet.unproven_links import Strangers
from proxy.forwarding.services import Services
from proxy.loop.interfaces import Notes
from proxy.loop.lasting_trouble import LastingTrouble
from proxy.loop.listeners import Listener, bind
from proxy.loop.reactor import Reactor
from proxy.loop.transports import PlainTransport, TlsTransport, Transport
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.values import Address

DIAL_S = 2.0
RETRY_MIN_S, RETRY_MAX_S = 0.05, 1.0
"""Before a link that ended, or could not be made, is dialled anew."""
LINKS_MAX = 200
"""Links that members of the fleet may have here; one more is closed. Those of others: `strangers.UNPROVEN_MAX`."""
TELL_GROUPS_S = 0.5
"""So often other proxies hear which groups have come and gone."""
FIRST_NUMBER = 1 << 40
"""Far above the number of any connection of this process."""


class LinkTable(Protocol):
    """What the group of proxies says: `owners.Membership`."""

    generation: int
    elsewhere: dict[int, str]
    """State partition -> where its owner is reached."""
    peers: frozenset[str]
    """Where the other members are reached."""


class LinkTls(NamedTuple):
    """How links are encrypted; both sides verify each other."""

    dials: ssl.SSLContext
    dialled: ssl.SSLContext
    server_name: str | None = None
    """The name in the certificates of all proxies; None: the host that is dialled."""


class FleetLinks:
    """See group_owners.Fleet."""

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
    ) -> None:
        """`address` is what this proxy calls itself; `carried`: what others may ask of it."""
        self._reactor = reactor
        self._services = services
        self._carried = carried
        self._table = table
        self._notes = notes
        self._address = address
        self._secret = secret
        self._tls = tls
        self._edges: dict[str, tuple[PeerLink, PeerEdge]] = {}
        """Where it is reached -> the link dialled to it."""
        self._dialling: dict[str, trio.CancelScope] = {}
        self._accepted: dict[PeerLink, PeerOwner] = {}
        """Of members of the fleet that dialled this proxy."""
        self._strangers = Strangers()
        self._listeners: tuple[Listener, ...] = ()
        self._numbers = count(FIRST_NUMBER)
        self._groups: dict[str, None] = {}
        self._last_heard: dict[str, set[str]] = {}
        """Groups of members whose link ended: they are theirs until they, or somebody else, say otherwise."""
        self._table_changed = trio.Event()

    # group_owners.Fleet

    @property
    def groups(self) -> Mapping[str, None]:
        """See group_owners.Fleet."""
        return self._groups

    @property
    def members(self) -> Mapping[str, Peer | None]:
        """See group_owners.Fleet."""
        linked: dict[str, Peer] = {address: edge for address, (_, edge) in self._edges.items()}
        return {address: linked.get(address) for address in self._table.peers}

    def owner(self, partition: int) -> Peer | None:
        """See group_owners.Fleet."""
        found = self._edges.get(self._table.elsewhere.get(partition, ""))
        return None if found is None else found[1]

    def owners(self, partitions: Iterable[int]) -> list[Peer] | None:
        """See group_owners.Fleet."""
        found: dict[int, Peer] = {}
        for partition in partitions:
            owner = self.owner(partition)
            if owner is None:
                return None
            found[id(owner)] = owner
        return list(found.values())

    # For people

    @property
    def linked(self) -> list[str]:
        """Where the proxies are reached that there is a link to."""
        return sorted(self._edges)

    @property
    def missing(self) -> list[str]:
        """Members without a link to them."""
        return sorted(self._table.peers - self._edges.keys())

    @property
    def requests_waiting(self) -> int:
        """Requests that other proxies have not answered yet."""
        return sum(edge.waiting for _, edge in self._edges.values())

    @property
    def far_clients(self) -> int:
        """Clients of other proxies whose groups are owned here."""
        return sum(owner.connections for owner in self._accepted.values())

    # Running

    def listen(self, address: Address) -> int:
        """Let other proxies in; the port, for callers that gave 0. Raises OSError."""
        sockets = bind(address.host, address.port)
        self._listeners = tuple(Listener(self._reactor, sock, self._let_in, self._trouble) for sock in sockets)
        return self._listeners[0].port

    def look_soon(self) -> None:
        """There is another table."""
        self._table_changed.set()

    async def run(self) -> None:
        """Dial whom the table names, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_groups)
                while True:
                    self._table_changed = trio.Event()
                    self._follow(nursery)
                    await self._table_changed.wait()
        finally:
            self.close()

    def close(self) -> None:
        """End all links; nothing is sent any more."""
        for listener in self._listeners:
            listener.close()
        edges = [link for link, _ in self._edges.values()]
        for link in (*edges, *self._accepted, *self._strangers.links()):
            link.close("the proxy stops")

    def _follow(self, nursery: trio.Nursery) -> None:
        wanted = self._table.peers
        for address in self._dialling.keys() - wanted:
            self._dialling.pop(address).cancel()
        for address in self._edges.keys() - wanted:
            self._edges[address][0].close("it has left the fleet")
        for address in self._last_heard.keys() - wanted:
            del self._last_heard[address]
        self._gather_groups()
        for address in wanted - self._dialling.keys():
            scope = self._dialling[address] = trio.CancelScope()
            nursery.start_soon(self._keep, address, scope)
        self._carried.links_changed()

    async def _keep(self, address: str, scope: trio.CancelScope) -> None:
        """Have a link to this proxy, again and again."""
        delay = RETRY_MIN_S
        unreached = LastingTrouble(self._notes, "peer-unreachable", "peer-reached", peer=address)
        with scope:
            while True:
                try:
                    sock = await dialling.connect(_parsed(address), DIAL_S)
                except OSError as error:
                    unreached.happened(str(error))
                else:
                    unreached.ended()
                    if await self._use(address, sock):
                        delay = RETRY_MIN_S
                await trio.sleep(delay)
                delay = min(2 * delay, RETRY_MAX_S)

    async def _use(self, address: str, sock: socket.socket) -> bool:
        """Until the link ends; whether the other side was let in at all."""
        over = trio.Event()
        was_good = False

        def established(link: PeerLink) -> User:
            nonlocal was_good
            was_good = True
            edge = PeerEdge(
                self._carried.edges(), self._services.timers, link.send, lambda: self._table.generation, link
            )
            edge.on_groups = partial(self._heard_groups, address)
            self._edges[address] = link, edge
            self._carried.links_changed()
            return edge

        def ended(link: PeerLink) -> None:
            if self._edges.get(address, (None,))[0] is link:
                self._last_heard[address] = self._edges.pop(address)[1].groups | self._last_heard.get(address, set())
                self._gather_groups()
            over.set()

        link = self._link(sock, dials=_parsed(address).host, established=established, ended=ended)
        try:
            await over.wait()
        finally:
            link.close("not wanted any more")
        return was_good

    def _let_in(self, sock: socket.socket, host: str) -> None:
        in_the_way = self._strangers.in_the_way(host)
        if in_the_way is not None:
            in_the_way.close("it proved nothing, and others wait")

        def established(link: PeerLink) -> User:
            self._strangers.remove(link)
            if len(self._accepted) >= LINKS_MAX:
                raise RemoteProtocolError(f"more than {LINKS_MAX} links of the fleet")
            owner = PeerOwner(
                self._services, self._carried, link.send, lambda: self._table.generation, self._numbers, link
            )
            self._accepted[link] = owner
            owner.tell_groups()
            return owner

        link = self._link(sock, dials=None, established=established, ended=self._forget)
        if not link.closed:
            self._strangers.add(link, host)

    def _forget(self, link: PeerLink) -> None:
        self._accepted.pop(link, None)
        self._strangers.remove(link)

    def _link(
        self,
        sock: socket.socket,
        *,
        dials: str | None,
        established: Callable[[PeerLink], User],
        ended: Callable[[PeerLink], None],
    ) -> PeerLink:
        """`dials`: the host that was dialled; None for a link that another proxy dialled."""
        return PeerLink(
            self._reactor,
            self._transport(sock, dials),
            PeerProtocol(self._address, self._secret, os.urandom(NONCE_BYTES), dials=dials is not None),
            self._notes,
            lambda: self._table.generation,
            established,
            ended,
        )

    def _transport(self, sock: socket.socket, dials: str | None) -> Transport:
        if self._tls is None:
            return PlainTransport(self._reactor, sock)
        return TlsTransport(
            self._reactor,
            sock,
            self._tls.dialled if dials is None else self._tls.dials,
            server_side=dials is None,
            server_hostname=None if dials is None else self._tls.server_name or dials,
            handshake_timeout_s=HANDSHAKE_S,
        )

    def _trouble(self, error: Exception) -> None:
        self._notes("peer-refused", peer="", reason=str(error))

    # Groups

    def _heard_groups(self, address: str) -> None:
        self._last_heard.pop(address, None)
        self._gather_groups()

    def _gather_groups(self) -> None:
        linked = (edge.groups for _, edge in self._edges.values())
        found = frozenset().union(*linked, *self._last_heard.values())
        self._groups.clear()
        self._groups.update(dict.fromkeys(found))

    async def _tell_groups(self) -> None:
        while True:
            await trio.sleep(TELL_GROUPS_S)
            for owner in list(self._accepted.values()):
                owner.tell_groups()


def _parsed(text: str) -> Address:
    """What another proxy said of itself. Raises OSError where that is no address."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise OSError(f"{text!r} is no address")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
