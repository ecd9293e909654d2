"""Taps of connections: C does not forward its bytes while it is traced, and does so again afterwards."""

from __future__ import annotations

from contextlib import suppress

import pytest
from kafka_share_proxy.forwarding.client_trace import tap
from kafka_share_proxy.forwarding.client_trace.client_trace import TraceLimits
from kafka_share_proxy.forwarding.client_trace.exchanges import Exchanges
from kafka_share_proxy.forwarding.client_trace.tapped_transport import TappedTransport
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.walk import pump
from kafka_share_proxy.loop.transports import PlainTransport

from tests.forwarding.apis.test_k78_forwarded_share_fetch import connected as share_fetch_sent
from tests.forwarding.apis.test_k78_forwarded_share_fetch import share_fetch_response, share_fetch_world
from tests.forwarding.client_trace.test_client_trace import ADDRESS, connected, exchanged, summaries
from tests.forwarding.plane_world import FETCH, LIST, World, request, response, world
from tests.forwarding.served.test_synchronous_fast_path import Taken, taking


def only(w: World) -> ForwardedConnection:
    (connection,) = w.plane.connections()
    return connection


@pytest.mark.skipif(pump.KERNEL == "python", reason="without the pump in C everything goes through Python")
def test_c_forwards_again_after_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    with world() as w:
        client, broker = connected(w)
        walk = type(only(w).requests)
        ready = walk.ready
        monkeypatch.setattr(walk, "ready", lambda self, mask: (read.append(mask), ready(self, mask))[1])
        client, broker = connected(w)
        read.clear()
        exchanged(client, broker, 1)
        assert read == []
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        exchanged(client, broker, 2)
        assert len(read) == 1
        w.plane.client_trace.finish("enough")
        exchanged(client, broker, 3)
        assert len(read) == 1


def test_requests_on_the_fast_path_are_served_during_a_trace_and_afterwards() -> None:
    handler = Taken()
    handler.forwards = True
    w = taking(handler)
    client, broker = w.pair()
    for number, change in enumerate(
        (
            lambda: None,
            lambda: w.plane.client_trace.begin(ADDRESS, TraceLimits()),
            lambda: w.plane.client_trace.finish("enough"),
        )
    ):
        change()
        client.send(request(LIST, 1, number))
        broker.expect(request(LIST, 1, number, b"other"))
        broker.send(response(number, b"body"))
        client.expect(response(number, b"body"))
    w.close()


def test_the_socket_of_the_client_is_wrapped_only_while_it_is_traced() -> None:
    with world() as w:
        connected(w)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        assert isinstance(only(w).client.transport, TappedTransport)
        w.plane.client_trace.finish("enough")
        assert isinstance(only(w).client.transport, PlainTransport)


def test_a_connection_that_ends_during_a_trace_is_forgotten() -> None:
    with world() as w:
        client, broker = connected(w)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        exchanged(client, broker, 1)
        client.close()
        w.iterate_until(lambda: not list(w.plane.connections()))
        w.plane.client_trace.finish("enough")
        assert len(w.plane.client_trace.after(0)["lines"]) == 2


def test_a_trace_begins_after_the_response_that_the_client_has_not_accepted() -> None:
    with world() as w:
        client, broker = connected(w)
        client.send(request(FETCH, 11, 50))
        broker.expect(request(FETCH, 11, 50))
        large, sent = response(50, bytes(16 << 20)), 0
        while not only(w).client.has_unsent:
            with suppress(BlockingIOError):
                sent += broker.sock.send(large[sent : sent + (64 << 10)])
            w.iterate()
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        broker.send(large[sent:])
        client.expect(large)
        exchanged(client, broker, 51)
        assert summaries(w) == ["> Heartbeat 51", "< Heartbeat 51"]


@pytest.mark.parametrize("come", [100, 300_000, 600_100])
def test_a_trace_begins_after_a_share_fetch_response_that_is_forwarded_in_parts(come: int) -> None:
    with share_fetch_world() as w:
        client, broker = share_fetch_sent(w)
        whole = share_fetch_response(9, 300_000)
        broker.send(whole[:come])
        w.iterate_until(lambda: only(w).responses.is_busy)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        broker.send(whole[come:])
        client.expect(whole)
        exchanged(client, broker, 51)
        assert summaries(w) == ["> Heartbeat 51", "< Heartbeat 51"]


def test_a_mistake_in_a_trace_ends_the_trace_of_the_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(Exchanges, "request", mistaken)
    with world() as w:
        client, broker = connected(w)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        exchanged(client, broker, 1)
        exchanged(client, broker, 2)
        assert w.events().count(tap.FAILED) == 1
        assert summaries(w) == []
