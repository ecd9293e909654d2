"""Drain of the plane, and the release of ended connections."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.lowlevel
from kafka_share_proxy.forwarding import data_plane
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.data_plane import Plane
from kafka_share_proxy.forwarding.drain_order import Spread
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.forwarding.walk.pump import new_pump
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.transports import PlainTransport
from kafka_share_proxy.wire.values import UNKNOWN_NODE

from tests.forwarding.plane_world import FETCH, LOCAL, UPSTREAM, request, response, some_routes, world
from tests.support.conditions import until


def drained(
    scenario: Callable[[Plane, Reactor, int], Any], within_s: float = 5.0, spread_s: float = 0
) -> tuple[bool, Any]:
    """Run a scenario (a Trio function given a plane, its reactor and port) and then drain."""
    reactor = Reactor(new_pump)
    handler_wait: Promise[None] = Promise()

    async def handle(call: Any) -> bytes:
        await handler_wait
        return response(call.correlation_id)

    async def main() -> tuple[bool, Any]:
        def dial(targets: Any, done: Any) -> Callable[[], None]:
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            brokers.append(theirs)
            reactor.call_soon(owner, lambda: done(Dialled(ours, targets[0])))
            return lambda: None

        plane = Plane(reactor, routes, Limits(), lambda *_a, **_k: None, dial)
        port = plane.ports.listen(UNKNOWN_NODE, "127.0.0.1", 0, lambda: [UPSTREAM])
        async with trio.open_nursery() as nursery:
            result = await scenario(plane, reactor, port, brokers, handler_wait, nursery)  # type: ignore[call-arg]
            outcome = await plane.drained(reactor.now() + within_s, Spread(seconds=spread_s) if spread_s else None)
            nursery.cancel_scope.cancel()
        if isinstance(result, trio.SocketStream):
            await trio.aclose_forcefully(result)
        return outcome, result

    from kafka_share_proxy.brokers.dialling import Dialled

    class Owner:
        def failed(self, error: Exception) -> None:
            raise error

    owner = Owner()
    routes = some_routes(local=handle)
    brokers: list[socket.socket] = []
    try:
        return reactor.run(main)
    finally:
        for broker in brokers:
            broker.close()
        reactor.iterate(0)
        reactor.shut()


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


def test_drain_ends_idle_connections_immediately() -> None:
    async def scenario(plane: Plane, _r: Any, port: int, *_rest: Any) -> trio.SocketStream:
        stream = await connect(port)
        await until(lambda: plane.statistics().connections == 1)
        return stream

    start = Reactor(new_pump)
    before = start.now()
    outcome, stream = drained(scenario)
    assert outcome is True
    assert start.now() - before < 4.0
    assert stream is not None
    start.shut()


def test_a_spread_drain_closes_one_connection_after_the_other() -> None:
    closed: list[tuple[int, float]] = []

    async def scenario(plane: Plane, reactor: Reactor, port: int, *rest: Any) -> None:
        async def note_end(number: int, stream: trio.SocketStream) -> None:
            await stream.receive_some()
            closed.append((number, reactor.now()))
            await trio.aclose_forcefully(stream)

        for number in range(4):
            rest[-1].start_soon(note_end, number, await connect(port))
            await until(lambda number=number: plane.statistics().connections == number + 1)

    outcome, _ = drained(scenario, spread_s=1.0)
    assert outcome is True
    assert [number for number, _ in closed] == [0, 1, 2, 3]
    assert closed[-1][1] - closed[0][1] >= 0.7


def test_a_drain_may_be_hurried() -> None:
    async def scenario(plane: Plane, reactor: Reactor, port: int, *_rest: Any) -> trio.SocketStream:
        stream = await connect(port)
        await until(lambda: plane.statistics().connections == 1)
        second = await connect(port)
        await until(lambda: plane.statistics().connections == 2)
        reactor.call_at(reactor.now() + 0.1, plane.drain_now)
        await trio.aclose_forcefully(second)
        return stream

    outcome, _ = drained(scenario, within_s=60, spread_s=60)
    assert outcome is True


def test_drain_finishes_requests_in_flight_and_reads_no_new_ones() -> None:
    async def scenario(
        plane: Plane, _r: Any, port: int, brokers: list[socket.socket], wait: Promise[None], nursery: trio.Nursery
    ) -> list[bytes]:
        got: list[bytes] = []
        forwarded, local = await connect(port), await connect(port)
        await forwarded.send_all(request(FETCH, 11, 1))
        await local.send_all(request(LOCAL, 1, 2))
        await until(lambda: plane.statistics().in_flight == 2 and brokers)

        async def rest() -> None:
            async with forwarded, local:
                await trio.sleep(0.05)
                await forwarded.send_all(request(FETCH, 11, 99))
                await trio.sleep(0.05)
                wait.set(None)
                got.append(await local.receive_some(100))
                got.append(await local.receive_some(100))
                brokers[0].send(response(1, b"late"))
                with trio.CancelScope(shield=True):
                    got.append(await forwarded.receive_some(100))

        nursery.start_soon(rest)
        await trio.lowlevel.checkpoint()
        results.append(got)
        return got

    results: list[list[bytes]] = []
    outcome, _ = drained(scenario)
    assert outcome is True
    assert results[0] == [response(2), b"", response(1, b"late")]


def test_drain_drops_no_response() -> None:
    """An unread request in the kernel does not reset the connection when it ends."""

    async def scenario(
        plane: Plane, _r: Any, port: int, brokers: list[socket.socket], wait: Promise[None], nursery: trio.Nursery
    ) -> None:
        stream = await connect(port)
        await stream.send_all(request(LOCAL, 1, 2))
        await until(lambda: plane.statistics().in_flight == 1)

        async def rest() -> None:
            await stream.send_all(request(FETCH, 11, 99) * 10)
            wait.set(None)
            with trio.CancelScope(shield=True), trio.fail_after(5):
                await until(lambda: not plane.statistics().connections)
                await trio.sleep(0.05)
                results.append(await stream.receive_some(1000))
                results.append(await stream.receive_some(1000))
                await stream.aclose()

        nursery.start_soon(rest)
        await trio.lowlevel.checkpoint()

    results: list[bytes] = []
    outcome, _ = drained(scenario)
    assert (outcome, results) == (True, [response(2), b""])


def test_drain_cuts_what_has_not_finished_by_the_deadline() -> None:
    async def scenario(plane: Plane, _r: Any, port: int, brokers: list[socket.socket], *_rest: Any) -> Any:
        stream = await connect(port)
        await stream.send_all(request(FETCH, 11, 1))
        await until(lambda: brokers and plane.statistics().in_flight == 1)
        return stream

    assert drained(scenario, within_s=0.1)[0] is False


def test_drain_of_an_empty_plane_is_over_immediately() -> None:
    async def scenario(*_all: Any) -> None:
        return None

    assert drained(scenario, within_s=60.0) == (True, None)


def test_connections_that_ended_leave_nothing_to_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane, "RELEASE_S", 0.0)
    monkeypatch.setattr(data_plane, "SWEEP_S", 0.01)

    def alive() -> int:
        return sum(isinstance(each, ForwardedConnection | PlainTransport) for each in gc.get_objects())

    with world() as w:
        gc.collect()
        before = alive()
        gc.disable()
        try:
            for _ in range(5):
                client, broker = w.pair()
                client.send(request(FETCH, 11, 5))
                w.iterate()
                client.close()
                broker.close()
            w.iterate_until(lambda: alive() <= before)
        finally:
            gc.enable()
