"""Listeners of the plane, drain, and who may come in."""

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
from kafka_share_proxy.loop.listeners import bind
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.transports import PlainTransport
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

from tests.forwarding.plane_world import FETCH, LOCAL, UPSTREAM, request, response, some_routes, world


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with world() as w, pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{w.port}: .*in use"):
        w.plane.listen(7, "127.0.0.1", w.port, lambda: [UPSTREAM])


def test_a_port_above_65535_is_a_clear_error() -> None:
    with world() as w, pytest.raises(OSError, match="ports end at 65535"):
        w.plane.listen(60_000, "127.0.0.1", 9093 + 60_000, lambda: [UPSTREAM])


def test_each_broker_has_a_listener_and_its_connections_know_it() -> None:
    seen: list[int] = []

    def targets() -> list[Address]:
        return [Address("seven.test", 1)]

    async def handle(call: Any) -> bytes:
        seen.append(call.connection.node_id)
        return response(call.correlation_id)

    with world(some_routes(local=handle)) as w:
        port = w.plane.listen(7, "127.0.0.1", 0, targets)
        bootstrap = w.client()
        bootstrap.send(request(LOCAL, 1, 1))
        bootstrap.expect(response(1))
        w.port = port
        client = w.client()
        client.send(request(LOCAL, 1, 1) + request(FETCH, 11, 2))
        client.expect(response(1))
        w.turn_until(lambda: w.dialled)
        assert seen == [UNKNOWN_NODE, 7]
        assert w.dialled == [[Address("seven.test", 1)]]


def test_behind_the_bootstrap_listener_a_connection_knows_the_broker_that_was_reached() -> None:
    seen: list[tuple[int, bool]] = []

    async def handle(call: Any) -> bytes:
        seen.append((call.connection.node_id, call.connection.is_bootstrap))
        return response(call.correlation_id)

    advertised = {UPSTREAM: 5}
    with world(some_routes(local=handle), node_at=lambda address: advertised.get(address, UNKNOWN_NODE)) as w:
        client, _ = w.pair()
        client.send(request(LOCAL, 1, 7))
        client.expect(response(7))
        advertised.clear()
        client.send(request(LOCAL, 1, 8))
        client.expect(response(8))
    assert seen == [(5, True), (UNKNOWN_NODE, True)]


def test_a_listener_that_closes_leaves_its_connections_alone() -> None:
    with world() as w:
        client, broker = w.pair()
        w.plane.close_listener(UNKNOWN_NODE)
        w.plane.close_listener(UNKNOWN_NODE)
        w.turn()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", w.port))
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))


def test_a_listener_can_be_opened_again_on_the_same_port() -> None:
    with world() as w:
        client, _ = w.pair()
        w.plane.close_listener(UNKNOWN_NODE)
        client.close()
        w.turn_until(lambda: not w.plane.statistics().connections)
        assert w.plane.listen(UNKNOWN_NODE, "127.0.0.1", w.port, lambda: [UPSTREAM]) == w.port
        w.pair()


def test_clients_of_another_process_on_the_same_ports_are_accepted_until_it_is_back() -> None:
    with world() as w:
        (shared,) = bind("127.0.0.1", 0, shares=True)
        port = shared.getsockname()[1]
        w.plane.cover(1, lambda _host, _port: [shared.dup()])
        with socket.create_connection(("127.0.0.1", port)):
            w.turn_until(lambda: w.plane.statistics().connections == 1)
            w.plane.uncover(1)
            w.reactor.turn(0)
            with socket.create_connection(("127.0.0.1", port)):  # waits at the socket, which is open elsewhere
                w.reactor.turn(0.05)
                assert w.plane.statistics().connections_total == 1
        shared.close()


def test_covering_fails_as_a_whole() -> None:
    def refuse(_host: str, _port: int) -> list[socket.socket]:
        raise OSError("the supervisor has ended")

    with world() as w:
        with pytest.raises(OSError, match="has ended"):
            w.plane.cover(1, refuse)
        w.pair()


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

        plane = Plane(reactor, lambda: routes, Limits(), lambda *_a, **_k: None, dial)
        port = plane.listen(UNKNOWN_NODE, "127.0.0.1", 0, lambda: [UPSTREAM])
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
        reactor.turn(0)
        reactor.shut()


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110  # what is waited for is outside Trio
            await trio.sleep(0.002)


def test_drain_ends_idle_connections_at_once() -> None:
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


def test_drain_lets_what_is_in_flight_finish_and_looks_at_nothing_new() -> None:
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


def test_drain_of_an_empty_plane_is_over_at_once() -> None:
    async def scenario(*_all: Any) -> None:
        return None

    assert drained(scenario, within_s=60.0) == (True, None)


def test_one_address_gets_no_more_than_its_limit_and_all_of_it_again() -> None:
    with world(limits=Limits(connections_per_address=2)) as w:
        first, second = w.client(), w.client()
        w.turn_until(lambda: w.plane.statistics().connections == 2)
        w.peer(socket.create_connection(("127.0.0.1", w.port))).expect_end()
        ((_, context),) = [noted for noted in w.notes if noted[0] == "connection-limit"]
        assert context["reason"] == "limits.connections_per_address (2) is reached"
        first.close()
        w.turn_until(lambda: w.plane.statistics().connections == 1)
        w.client()
        w.turn_until(lambda: w.plane.statistics().connections == 2)
        second.close()
        w.turn_until(lambda: w.plane.statistics().connections == 1)
        assert sum(w.plane._by_address.values()) == 1


def test_a_side_that_still_sends_after_its_connection_ended_counts_as_one() -> None:
    """It keeps its descriptor until its peer has taken all."""
    with world(limits=Limits(connections=2)) as w:
        w.pair()
        (connection,) = w.plane._connections.values()
        connection.to_client(bytes(64 << 20))  # more than the kernel takes
        connection.broker_left(None)
        assert (len(w.plane._lingering), w.plane.statistics().connections) == (1, 0)
        w.client()
        w.turn_until(lambda: w.plane.statistics().connections == 1)
        w.peer(socket.create_connection(("127.0.0.1", w.port))).expect_end()


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
                w.turn()
                client.close()
                broker.close()
            w.turn_until(lambda: alive() <= before)
        finally:
            gc.enable()
