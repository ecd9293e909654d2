"""Ports of the plane: each broker has its listener, and may be reached at those of another process."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kafka_share_proxy.loop.listeners import bind
from kafka_share_proxy.wire.values import UNKNOWN_NODE, Address

from tests.forwarding.plane_world import FETCH, LOCAL, UPSTREAM, request, response, some_routes, world


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with world() as w, pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{w.port}: .*in use"):
        w.plane.ports.listen(7, "127.0.0.1", w.port, lambda: [UPSTREAM])


def test_a_port_above_65535_is_a_clear_error() -> None:
    with world() as w, pytest.raises(OSError, match="ports end at 65535"):
        w.plane.ports.listen(60_000, "127.0.0.1", 9093 + 60_000, lambda: [UPSTREAM])


def test_each_broker_has_a_listener_and_its_connections_know_it() -> None:
    node_ids: list[int] = []

    def targets() -> list[Address]:
        return [Address("seven.test", 1)]

    async def handle(call: Any) -> bytes:
        node_ids.append(call.connection.node_id)
        return response(call.correlation_id)

    with world(some_routes(local=handle)) as w:
        port = w.plane.ports.listen(7, "127.0.0.1", 0, targets)
        bootstrap = w.client()
        bootstrap.send(request(LOCAL, 1, 1))
        bootstrap.expect(response(1))
        w.port = port
        client = w.client()
        client.send(request(LOCAL, 1, 1) + request(FETCH, 11, 2))
        client.expect(response(1))
        w.iterate_until(lambda: w.dialled)
        assert node_ids == [UNKNOWN_NODE, 7]
        assert w.dialled == [[Address("seven.test", 1)]]


def test_through_the_bootstrap_listener_a_connection_knows_the_broker_that_was_reached() -> None:
    origins: list[tuple[int, bool]] = []

    async def handle(call: Any) -> bytes:
        origins.append((call.connection.node_id, call.connection.is_bootstrap))
        return response(call.correlation_id)

    advertised = {UPSTREAM: 5}
    with world(some_routes(local=handle), node_at=lambda address: advertised.get(address, UNKNOWN_NODE)) as w:
        client, _ = w.pair()
        client.send(request(LOCAL, 1, 7))
        client.expect(response(7))
        advertised.clear()
        client.send(request(LOCAL, 1, 8))
        client.expect(response(8))
    assert origins == [(5, True), (UNKNOWN_NODE, True)]


def test_a_listener_that_closes_leaves_its_connections_alone() -> None:
    with world() as w:
        client, broker = w.pair()
        w.plane.ports.close_listener(UNKNOWN_NODE)
        w.plane.ports.close_listener(UNKNOWN_NODE)
        w.iterate()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", w.port))
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))


def test_a_listener_can_be_opened_again_on_the_same_port() -> None:
    with world() as w:
        client, _ = w.pair()
        w.plane.ports.close_listener(UNKNOWN_NODE)
        client.close()
        w.iterate_until(lambda: not w.plane.statistics().connections)
        assert w.plane.ports.listen(UNKNOWN_NODE, "127.0.0.1", w.port, lambda: [UPSTREAM]) == w.port
        w.pair()


def test_clients_of_another_process_on_the_same_ports_are_accepted_until_it_is_back() -> None:
    with world() as w:
        (shared,) = bind("127.0.0.1", 0, shares=True)
        port = shared.getsockname()[1]
        w.plane.ports.cover(1, lambda _host, _port: [shared.dup()])
        with socket.create_connection(("127.0.0.1", port)):
            w.iterate_until(lambda: w.plane.statistics().connections == 1)
            w.plane.ports.uncover(1)
            w.reactor.iterate(0)
            with socket.create_connection(("127.0.0.1", port)):  # waits at the socket, which is open elsewhere
                w.reactor.iterate(0.05)
                assert w.plane.statistics().connections_total == 1
        shared.close()


def test_covering_fails_as_a_whole() -> None:
    def refuse(_host: str, _port: int) -> list[socket.socket]:
        raise OSError("the supervisor has ended")

    with world() as w:
        with pytest.raises(OSError, match="has ended"):
            w.plane.ports.cover(1, refuse)
        w.pair()
