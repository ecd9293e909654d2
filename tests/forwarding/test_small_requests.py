"""Many small requests of every API that is inspected, rewritten or served here: other clients are served in between.

The clock is scripted: it advances with each reading, so the budget of a connection ends after a known number of frames
on any machine. The APIs are read from the routes of the product, so a new API is covered without a change here.
`tests/long/bystander_small.py` measures the same requests at real brokers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafka_share_proxy.commits import commit_apis
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.dispatch import chain, response_dispatch, route_table
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.forwarding.dispatch.routes import Context, Kind, Route, Routes
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.rewriting.address_book import AddressBook
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.walk.walk import INSPECTIONS_MAX
from kafka_share_proxy.loop import reactor
from kafka_share_proxy.loop.reactor import SHARE_S, Reactor
from kafka_share_proxy.sharegroups import share_group_apis
from kafka_share_proxy.views import view_apis
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.forwarding.plane_world import HEARTBEAT, LIMIT_S, Peer, World, request, response, world
from tests.support import hostile, ports, view_broker
from tests.support.commit_world import CommitWorld

BUDGET = 2
"""Readings of the clock within the budget of a connection (`SHARE_S`)."""
MANY = 300
"""Small requests in one receive buffer."""
REQUESTS_MAX = 2 * (BUDGET + 1) * INSPECTIONS_MAX
"""Most forwarded requests that are treated in one loop iteration: those of the walk as they are received, and of the
one that continues. The clock is not read after the first run of a walk.
"""
RESPONSES_MAX = 2 * BUDGET
"""The same of responses: the clock is read after each."""
SERVED_MAX = 4 + 3
"""Most times that requests served here are treated in one iteration. The first one is looked into as it is received, as
the walk begins and once it is gathered, and then it is served. The next one is, where the connection continues.
"""
BURST_BYTES = 60_000
"""Bytes that the kernel keeps for a connection in any case."""
ONCE = {Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE}
"""A client sends these one by one, and a broker ends a connection that does not."""


def product_routes(has_features: bool) -> Routes:
    """Routes of the product, with all features or with none."""
    book = AddressBook(1, "localhost", lambda _node_id, _upstream: True)
    if not has_features:
        return route_table.build(book, EffectiveVersions(Offer(())), Limits(), {})
    share = share_group_apis.served(ports.World().services)
    commits = CommitWorld().services
    before, after = commit_apis.deletions(commits), commit_apis.commits(commits)
    served = chain.in_order((view_apis.served(view_broker.World().views), before, share, after))
    return route_table.build(book, EffectiveVersions(Offer((share_group_apis.OFFER,))), Limits(), served)


def is_treated(route: Route) -> bool:
    """Return True if requests or responses of the route do not simply pass."""
    return route.amend is not None or route.kind not in (Kind.FORWARD, Kind.REFUSE)


ROUTES = product_routes(has_features=True)
TREATED = {route.key: route for route in ROUTES.values() if is_treated(route) and route.kind not in ONCE}
"""API key -> route of its highest version, for every API that is not simply forwarded."""
FORWARDING = product_routes(has_features=False)
"""Routes where the broker responds to everything but ApiVersions, and responses are rewritten."""


class Treated:
    """Frames that are treated in Python: looked into, amended, served or gathered."""

    def __init__(self) -> None:
        self.count = 0
        self.served: list[int] = []
        """Correlation ids of the requests that were served here, in order."""

    async def handle(self, call: Call[Any]) -> bytes:
        self.count += 1
        self.served.append(call.correlation_id)
        return response(call.correlation_id, b"served")

    def counted(self, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if function is None:
            return None

        def count(*arguments: Any) -> Any:
            self.count += 1
            return function(*arguments)

        return count

    def count_in(self, counted: Routes) -> Routes:
        """Return these routes, counted, with `handle` in place of all handlers."""
        routes = Routes(counted.fallback)
        for route in counted.values():
            looks = {"serve_here": self.counted(route.serve_here), "amend": self.counted(route.amend)}
            served = (
                {} if route.handler is None else {"handler": self.handle, "synchronous_handler": None, "picks": None}
            )
            routes.add(replace(route, **looks, **served))
        return routes


@dataclass
class Stage:
    """A client that sends a large number of small requests, another client, and a counted budget."""

    world: World
    client: Peer
    broker: Peer
    connection: ForwardedConnection
    other: Peer
    its_broker: Peer
    its_connection: ForwardedConnection
    treated: Treated
    continued: list[object]
    """Owners of the calls that `call_in_later_iteration` was given."""

    def counts(self, done: Callable[[], int], total: int) -> list[int]:
        """Return how many frames were treated in each loop iteration. The other client is served in every one.

        `done` returns how many frames were forwarded or served. Frames that the walk in C forwards are not treated.
        """
        counts: list[int] = []
        while done() < total:
            assert len(counts) <= total, "it does not continue"
            before = self.treated.count
            self.other.send(request(HEARTBEAT, 0, len(counts)))
            arrive(self.its_connection.client, 12)
            forwarded = self.its_connection.requests.bytes
            self.world.iterate()
            assert self.its_connection.requests.bytes == forwarded + 12, "the other client had to wait"
            counts.append(self.treated.count - before)
        self.its_broker.expect(b"".join(request(HEARTBEAT, 0, number) for number in range(len(counts))))
        return counts


def arrive(peer: Any, count: int) -> None:
    """Wait until the kernel has as many bytes for the proxy."""
    with socket.socket(fileno=peer.transport.fd) as sock:
        try:
            deadline = time.monotonic() + LIMIT_S
            arrived = 0
            while arrived < count:
                assert time.monotonic() < deadline
                try:
                    arrived = len(sock.recv(count, socket.MSG_PEEK))
                except BlockingIOError:
                    arrived = 0
        finally:
            sock.detach()


@contextmanager
def stage(routes: Routes, patch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Run these routes on a real loop, with a scripted clock. Two clients are connected."""
    treated = Treated()
    continued: list[object] = []
    patch.setattr(response_dispatch, "deliver", treated.counted(response_dispatch.deliver))
    with world(treated.count_in(routes)) as plane_world:
        pairs, connections = [], []
        for _ in range(2):
            pairs.append(connected(plane_world))
            connections.append(
                next(each for each in plane_world.plane._connections.values() if each not in connections)
            )
        call_in_later_iteration = plane_world.reactor.call_in_later_iteration

        def noted(owner: Any, callback: Callable[[], object]) -> None:
            continued.append(owner)
            call_in_later_iteration(owner, callback)

        plane_world.reactor.call_in_later_iteration = noted  # type: ignore[method-assign]
        patch.setattr(reactor, "SPREAD_S", 0.0)  # one call in each iteration
        clock = scripted_clock()
        patch.setattr(reactor, "monotonic", clock)
        patch.setattr(Reactor, "now", staticmethod(clock))
        (client, broker), (other, its_broker) = pairs
        yield Stage(plane_world, client, broker, connections[0], other, its_broker, connections[1], treated, continued)


def connected(plane_world: World) -> tuple[Peer, Peer]:
    """Return a client and its broker, after one request and its response."""
    client, before = plane_world.client(), len(plane_world.brokers)
    client.send(request(HEARTBEAT, 0, 0))
    plane_world.iterate_until(lambda: len(plane_world.brokers) > before)
    broker = plane_world.brokers[-1]
    broker.expect(request(HEARTBEAT, 0, 0))
    broker.send(response(0))
    client.expect(response(0))
    return client, broker


def scripted_clock() -> Callable[[], float]:
    """Return a clock on which `BUDGET` readings take a little longer than a connection may process bytes.

    A sum of exactly `SHARE_S` would be rounded below or above it, depending on the uptime of the machine.
    """
    now = time.monotonic()

    def read() -> float:
        nonlocal now
        now += 1.01 * SHARE_S / BUDGET
        return now

    return read


def small_requests(route: Route, shape: str) -> list[bytes]:
    """Requests of one size that differ in their correlation ids and names."""
    (frame,) = (each.frame for each in hostile.small(route.key, route.version) if each.shape == shape)
    count = min(MANY, BURST_BYTES // len(frame))
    numbered = (frame.replace(hostile.NUMBER.encode(), b"%08d" % number) for number in range(count))
    return [each[:8] + number.to_bytes(4, "big") + each[12:] for number, each in enumerate(numbered)]


def is_served(route: Route, frame: bytes) -> bool:
    return route.kind is Kind.LOCAL or (
        route.serve_here is not None and route.serve_here(memoryview(bytearray(frame))[4:])
    )


def amended(route: Route, frame: bytes) -> bytes:
    """Return the request as the broker gets it."""
    copy = bytearray(frame)
    if route.amend is not None:
        route.amend(memoryview(copy)[4:])
    return bytes(copy)


@pytest.mark.parametrize("shape", ["views", "plain"])
@pytest.mark.parametrize("key", TREATED, ids=registry.API_KEYS.__getitem__)
def test_small_requests_of_one_client_are_spread_over_iterations(
    key: int, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = TREATED[key]
    burst = small_requests(route, shape)
    size = len(burst[0])
    assert {len(each) for each in burst} == {size}
    served = [number for number, each in enumerate(burst) if is_served(route, each)]
    assert len(served) in (0, len(burst))
    with stage(ROUTES, monkeypatch) as s:
        before = s.connection.requests.bytes
        s.client.send(b"".join(burst))
        arrive(s.connection.client, len(burst) * size)
        counts = s.counts(lambda: len(s.treated.served) + (s.connection.requests.bytes - before) // size, len(burst))
        assert max(counts) <= (SERVED_MAX if served else REQUESTS_MAX)
        assert len([each for each in s.continued if each is s.connection]) >= len(counts) - 2
        if served:
            s.client.expect(b"".join(response(number, b"served") for number in served))
            assert s.treated.served == served
        else:
            s.broker.expect(b"".join(amended(route, each) for each in burst))
        s.client.expect_silence()


REWRITTEN = {
    route.key: route
    for route in FORWARDING.values()
    if route.rewrite is not None and not is_served(route, small_requests(route, "plain")[0])
}


@pytest.mark.parametrize("key", REWRITTEN, ids=registry.API_KEYS.__getitem__)
def test_small_responses_to_one_client_are_spread_over_iterations(key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    route = REWRITTEN[key]
    burst = small_requests(route, "plain")
    message = hostile.filled_response(key, route.version)
    responses = [frames.response(key, route.version, number, message) for number in range(len(burst))]
    assert route.rewrite is not None
    expected = [route.rewrite(memoryview(each)[4:], Context(UNKNOWN_NODE)) or each for each in responses]
    assert len(set(map(len, expected))) == 1
    with stage(FORWARDING, monkeypatch) as s:
        s.client.send(b"".join(burst))
        s.world.iterate_until(lambda: len(s.broker.take()) >= sum(map(len, burst)))
        before = s.connection.responses.bytes
        s.continued.clear()
        s.broker.send(b"".join(responses))
        arrive(s.connection.upstream.socket, sum(map(len, responses)))
        counts = s.counts(lambda: (s.connection.responses.bytes - before) // len(expected[0]), len(burst))
        assert max(counts) <= RESPONSES_MAX
        assert len([each for each in s.continued if each is s.connection.responses]) >= len(counts) - 2
        s.client.expect(b"".join(expected))
        s.client.expect_silence()
