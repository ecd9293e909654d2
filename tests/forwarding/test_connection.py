"""One client connection and its upstream connection: what holds the two together, and the end."""

from __future__ import annotations

import socket

import pytest
from kafka_share_proxy.forwarding.limits import Limits

from tests.forwarding.plane_world import (
    FETCH,
    PRODUCE,
    UPSTREAM,
    World,
    produce,
    request,
    response,
    world,
)


def test_bytes_pass_both_ways_unchanged_and_nothing_is_dialled_before_the_first() -> None:
    with world() as w:
        client = w.client()
        assert w.dialled == []
        client.send(request(FETCH, 11, 7, b"request"))
        w.iterate_until(lambda: w.brokers)
        w.brokers[0].expect(request(FETCH, 11, 7, b"request"))
        w.brokers[0].send(response(7, b"answer"))
        client.expect(response(7, b"answer"))
        assert w.dialled == [[UPSTREAM]]


def test_an_unknown_api_ends_the_connection_with_a_reason_and_no_other() -> None:
    with world() as w:
        client, _ = w.pair()
        other, _ = w.pair()
        client.send(request(9999, 0, 1))
        client.expect_end()
        assert (w.notes[-1][0], w.reason()) == ("request-refused", "API key 9999 version 0 is not known here")
        other.send(request(FETCH, 11, 1))
        w.brokers[1].expect(request(FETCH, 11, 1))


def test_a_broker_that_closes_takes_its_client_along_after_its_last_bytes() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1, b"x"))
        broker.receive(13)
        broker.send(response(1, bytes(10_000)))
        broker.close()
        client.expect(response(1, bytes(10_000)))
        client.expect_end()


@pytest.mark.parametrize("farewell", ["close", "reset", "half"])
def test_a_client_that_leaves_takes_its_upstream_connection_along(farewell: str) -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(request(FETCH, 11, 1))
        broker.receive(12)
        if farewell == "half":
            client.sock.shutdown(socket.SHUT_WR)
        else:
            client.close() if farewell == "close" else client.reset()
        broker.expect_end()
        assert w.plane.statistics().connections == 0


def test_both_directions_stalled_together_continue() -> None:
    """Neither side reads while it sends: nothing is lost, nothing locks up."""
    with world() as w:
        client, broker = w.pair()
        up = b"".join(request(FETCH, 11, n, bytes(200_000)) for n in range(60))
        client.send(request(FETCH, 11, 1000))
        broker.receive(12)
        down = response(1000, bytes(12_000_000))
        sent_up = sent_down = stuck = 0
        while stuck < 20:
            stuck += 1
            for _ in range(2):
                try:
                    sent_up += (count := client.sock.send(memoryview(up)[sent_up : sent_up + 500_000]))
                    sent_down += (more := broker.sock.send(memoryview(down)[sent_down : sent_down + 500_000]))
                    stuck = 0 if count + more else stuck
                except BlockingIOError:
                    w.iterate()
        assert client.receive(sent_down) == down[:sent_down]
        assert broker.receive(sent_up) == up[:sent_up]


def test_hundreds_of_connections_in_parallel() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(300)]
        for number, (client, _) in enumerate(pairs):
            client.send(request(FETCH, 11, number))
        for number, (_, broker) in enumerate(pairs):
            broker.expect(request(FETCH, 11, number))
            broker.send(response(number, b"%d" % number))
        for number, (client, _) in enumerate(pairs):
            client.expect(response(number, b"%d" % number))
        assert w.plane.statistics().connections == 300


def test_figures_add_up_after_connections_have_ended() -> None:
    with world() as w:
        client, broker = w.pair()
        client.send(produce(1, 1, 50))
        broker.receive(len(produce(1, 1, 50)))
        assert w.plane.statistics().in_flight == 1
        broker.send(response(1, b"ok"))
        client.receive(10)
        client.close()
        w.iterate_until(lambda: not w.plane.statistics().connections)
        figures = w.plane.statistics()
        assert figures.bytes_up == 12 + len(produce(1, 1, 50))
        assert figures.bytes_down == 8 + 10
        assert figures.ended == {"connection-closed": 1}


def test_the_world_of_these_tests_notices_silence() -> None:
    """The tests can fail: bytes that never come are an error."""
    with world() as w:
        client, _ = w.pair()
        with pytest.raises(AssertionError, match="never came about"):
            w.iterate_until(lambda: client.take(), limit_s=0.05)
    assert isinstance(w, World)
    assert PRODUCE == 0


def test_an_old_connection_ends_after_the_response_that_it_owes_and_reads_no_further_request() -> None:
    with world(limits=Limits(connection_age_s=100.0)) as w:
        client, broker = w.pair()
        (connection,) = w.plane._connections.values()
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))
        connection.sweep(w.reactor.now() + 50)
        client.expect_silence()
        connection.sweep(w.reactor.now() + 111)
        client.send(request(FETCH, 11, 2))
        client.expect_silence()
        broker.send(response(1, b"late"))
        client.expect(response(1, b"late"))
        client.expect_end()
        broker.expect_end()
        reasons = [reported.get("reason") for event, reported in w.notes if event == "connection-closed"]
        assert reasons == ["limits.connection_age_s"]


def test_an_old_connection_with_a_share_session_stays() -> None:
    with world(limits=Limits(connection_age_s=100.0)) as w:
        client, broker = w.pair()
        (connection,) = w.plane._connections.values()
        connection.on_close(lambda: None)
        connection.sweep(w.reactor.now() + 1_000)
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))
