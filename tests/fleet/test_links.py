"""Proxies of a fleet find and lose each other, over real sockets in one loop."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from kafka_share_proxy.fleet import links, peer_link
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.links import LINKS_MAX, FleetLinks, LinkTls, LocalLinks
from kafka_share_proxy.fleet.unproven_links import UNPROVEN_MAX
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.sharegroups.carried_requests import CarriedShareRequests
from kafka_share_proxy.sharegroups.services import FEATURE, ShareServices
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address

from tests.support.conditions import until
from tests.support.far import FarWorld
from tests.support.scripted_cluster import Connection

SECRET = b"sixteen bytes ok"
LIMIT_S = 10.0


class Table:
    """Table of the group of proxies."""

    def __init__(self) -> None:
        self.generation = 1
        self.elsewhere: dict[int, str] = {}
        self.peers: frozenset[str] = frozenset()
        self.expected = 0

    def expect_change(self) -> None:
        self.expected += 1


class One:
    """A proxy, as far as links go."""

    def __init__(
        self, reactor: Reactor, name: str, secret: bytes | None, tls: LinkTls | None, local: LocalLinks | None
    ) -> None:
        self.world = FarWorld()
        self.services: ShareServices = self.world.services
        self.services.timers = reactor
        self.table = Table()
        self.notes: list[tuple[str, dict[str, Any]]] = []
        shares = CarriedShareRequests(self.services, {76: self._handle})
        carried = CarriedFeatures()
        carried.add(shares, shares)
        self.links = FleetLinks(
            reactor,
            self.services,
            carried,
            self.table,
            lambda event, **context: self.notes.append((event, context)),
            address=name,
            secret=secret,
            tls=tls,
            local=local,
        )
        self.address = name
        if local is None:
            self.address = f"127.0.0.1:{self.links.listen(Address('127.0.0.1', 0))}"
        self.links.listen_locally()
        self.served = 0

    async def _handle(self, call: Call) -> bytes:
        self.served += 1
        return b"answer of " + str(call.client_id).encode()

    def sees(self, other: One) -> None:
        self.table.peers = frozenset({other.address})
        self.table.elsewhere = dict.fromkeys(range(50), other.address)
        self.links.check_soon()

    def events(self) -> list[str]:
        return [event for event, _ in self.notes]


def call_of(one: One, group_id: str = "g") -> Call:
    message = registry.message("ShareGroupHeartbeatRequest")(group_id=group_id, member_id="m")
    return Call(76, 1, 1, "client", message, Connection(one.world.cluster, 1))


def play(
    test: Callable[[Reactor, trio.Nursery, One, One], Awaitable[None]],
    *secrets: bytes | None,
    tls: tuple[LinkTls | None, LinkTls | None] = (None, None),
    local: tuple[LocalLinks | None, LocalLinks | None] = (None, None),
) -> None:
    reactor = Reactor(new_pump)

    async def main() -> None:
        names = itertools.count(1)
        parts = zip(secrets or (SECRET, SECRET), tls, local, strict=True)
        a, b = (One(reactor, f"{next(names)}:1", *each) for each in parts)
        async with trio.open_nursery() as nursery:
            for each in (a, b):
                nursery.start_soon(each.links.run)
            await test(reactor, nursery, a, b)
            nursery.cancel_scope.cancel()

    try:
        reactor.run(main)
    finally:
        reactor.shut()


def test_request_is_sent_to_the_owner_and_its_response_returns() -> None:
    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        assert a.links.owner(3) is None
        a.sees(b)
        assert a.links.missing == [b.address]
        peer = await until(lambda: a.links.owner(3))
        response = peer.serve(call_of(a), FEATURE)
        await until(lambda: response.done)
        assert response.result() == b"answer of client"
        assert (b.served, b.links.far_clients, a.links.requests_waiting) == (1, 1, 0)
        assert a.links.owners(range(50)) == [peer]
        assert (a.links.linked, a.links.missing) == ([b.address], [])

    play(test)


def test_workers_are_linked_by_unix_sockets(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("1:1", "2:1")}

    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.sees(b)
        peer = await until(lambda: a.links.owner(3))
        response = peer.serve(call_of(a), FEATURE)
        await until(lambda: response.done)
        assert response.result() == b"answer of client"

    play(test, local=(LocalLinks(paths["1:1"], paths), LocalLinks(paths["2:1"], paths)))


def test_members_of_either_link_are_notified_of_a_rejoin() -> None:
    """So they send a heartbeat, by which they notice the rebalance."""

    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.sees(b)
        await until(lambda: a.links.owner(3) and b.links._accepted)
        a.links.announce_rejoin()
        await until(lambda: b.table.expected == 1)
        b.links.announce_rejoin()
        await until(lambda: a.table.expected == 1)

    play(test)


def test_new_and_deleted_groups_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        b.services.coordinator.add_group("g")
        a.sees(b)
        await until(lambda: "g" in a.links.groups)
        b.services.coordinator.add_group("h")
        b.services.coordinator.remove_group("g")
        await until(lambda: set(a.links.groups) == {"h"})
        assert a.links.recent_groups == {"g", "h"}, "it may be on its way to another owner"
        b.services.coordinator.add_group("g")
        await until(lambda: set(a.links.groups) == {"g", "h"})
        b.services.coordinator.remove_group("g")
        await until(lambda: set(a.links.groups) == {"h"})
        monkeypatch.setattr(links, "RECENT_S", 0.0)
        assert a.links.recent_groups == {"h"}
        b.links.close()
        await until(lambda: not a.links.linked)
        assert set(a.links.groups) == {"h"}, "it is a share group as long as its owner belongs to the fleet"
        a.table.peers = frozenset()
        a.links.check_soon()
        await until(lambda: not a.links.groups)

    play(test)


def test_lost_link_is_opened_again_and_an_unneeded_one_is_not() -> None:
    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.sees(b)
        first = await until(lambda: a.links.owner(0))
        waiting = first.serve(call_of(a), FEATURE)
        for link in list(b.links._accepted):
            link.close("cut")
        await until(lambda: waiting.done)
        assert a.table.expected == 1, "the member may have ended"
        assert await until(lambda: a.links.owner(0) not in (None, first))
        a.table.peers, a.table.elsewhere = frozenset(), {}
        a.links.check_soon()
        await until(lambda: not a.links.linked and not b.links._accepted)
        assert "peer-lost" in a.events()

    play(test)


def test_proxy_without_the_secret_serves_no_other_and_is_not_served() -> None:
    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.sees(b)
        b.sees(a)
        await until(lambda: "peer-refused" in a.events() and "peer-refused" in b.events())
        assert (a.links.linked, b.links.linked) == ([], [])
        assert (a.links.owner(0), b.links.far_clients) == (None, 0)

    play(test, SECRET, b"another secret...")
    play(test, SECRET, None)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure a link that is not ended by the clock without proof."""
    monkeypatch.setattr(peer_link, "HANDSHAKE_S", 600.0)
    monkeypatch.setattr(peer_link, "SILENT_S", 600.0)


@pytest.mark.usefixtures("patient")
def test_unproven_links_do_not_use_up_the_limit_of_members() -> None:
    """They connect from the same host, more of them than there are links for members, and reconnect when they are
    ended.
    """

    async def flood(address: str) -> None:
        host, port = address.split(":")
        held: list[trio.SocketStream] = []
        try:
            for _ in range(100_000):
                held.append(await trio.open_tcp_stream(host, int(port)))
                if len(held) > 2 * LINKS_MAX:
                    held.pop().socket.close()
        finally:
            for stranger in held:
                stranger.socket.close()

    async def test(_r: Reactor, nursery: trio.Nursery, a: One, b: One) -> None:
        nursery.start_soon(flood, b.address)
        await until(lambda: b.events().count("peer-refused") > LINKS_MAX)
        a.sees(b)
        first = await until(lambda: a.links.owner(0))
        response = first.serve(call_of(a), FEATURE)
        assert await until(lambda: response.done)
        for link in list(b.links._accepted):
            link.close("cut")
        assert await until(lambda: a.links.owner(0) not in (None, first))
        assert len(b.links._unproven) <= UNPROVEN_MAX

    play(test)


@pytest.mark.usefixtures("patient")
def test_members_beyond_their_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers do not count among them."""
    monkeypatch.setattr(links, "LINKS_MAX", 1)

    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        host, port = b.address.split(":")
        strangers = [await trio.open_tcp_stream(host, int(port)) for _ in range(3)]
        a.sees(b)
        await until(lambda: a.links.owner(0))
        b.sees(b)
        await until(lambda: "more than 1 links of the fleet" in str(b.notes))
        assert (len(b.links._accepted), len(b.links._unproven)) == (1, 3)
        for stranger in strangers:
            await stranger.aclose()
        await until(lambda: not len(b.links._unproven))

    play(test)


def test_proxy_that_is_not_there_is_tried_again() -> None:
    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.table.peers = frozenset({"127.0.0.1:1"})
        a.links.check_soon()
        await until(lambda: "peer-unreachable" in a.events())
        assert a.links.owners([0]) is None
        a.sees(b)
        await until(lambda: a.links.owner(0))

    play(test, None, None)


FLEET_CA, OTHER_CA = trustme.CA(), trustme.CA()


def link_tls(ca: trustme.CA = FLEET_CA, name: str = "127.0.0.1", server_name: str | None = None) -> LinkTls:
    """A proxy's own certificate, and trust in the authority of the fleet."""
    sides = []
    for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(protocol)
        context.verify_mode = ssl.CERT_REQUIRED
        ca.issue_cert(name).configure_cert(context)
        FLEET_CA.configure_trust(context)
        sides.append(TlsContext(context))
    return LinkTls(*sides, server_name)


@pytest.mark.parametrize("name", ["127.0.0.1", "proxy.fleet"], ids=["host", "name"])
def test_encrypted_links_do_what_plain_ones_do(name: str) -> None:
    """Requests and responses of more than one TLS record, in both directions concurrently; certificates for the host or
    for a name.
    """
    server_name = None if name == "127.0.0.1" else name

    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.sees(b)
        b.sees(a)
        for one in (a, b):
            peer = await until(lambda one=one: one.links.owner(3))
            responses = [peer.serve(call_of(one, "g" * 30_000), FEATURE) for _ in range(20)]
            await until(lambda responses=responses: all(response.done for response in responses))
            assert {response.result() for response in responses} == {b"answer of client"}
        assert {type(link._transport).__name__ for link in a.links._accepted} == {"TlsTransport"}

    play(test, tls=(link_tls(name=name, server_name=server_name), link_tls(name=name, server_name=server_name)))


STRANGERS = {
    "certificate of another authority": link_tls(OTHER_CA),
    "certificate of another host": link_tls(name="other.example"),
    "no TLS": None,
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_proxy_without_a_certificate_of_the_fleet_gets_no_link(stranger: str) -> None:
    """Even with the secret: no link to it, and where its certificate is no good at all, none from it."""

    async def test(_r: Reactor, _n: trio.Nursery, a: One, b: One) -> None:
        a.sees(b)
        await until(lambda: "peer-refused" in a.events())
        assert (a.links.linked, a.links.owner(0), b.links.far_clients) == ([], None, 0)
        if stranger != "certificate of another host":  # it dials under no name
            b.sees(a)
            refused = len([event for event in a.events() if event == "peer-refused"])
            await until(lambda: a.events().count("peer-refused") > refused + 1)
            assert b.links.linked == []

    play(test, tls=(link_tls(), STRANGERS[stranger]))
