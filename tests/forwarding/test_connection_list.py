"""Lists of connections for operators: what a line has, which are listed, and how many."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding import connection_list
from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.connection_list import listed
from kafka_share_proxy.loop.promise import Promise

from tests.forwarding.plane_world import FETCH, LOCAL, request, some_routes, world


def test_a_line_says_who_is_connected_and_what_it_waits_for() -> None:
    with world() as w:
        client, broker = w.pair()
        (connection,) = w.plane.connections()
        connection.software = ClientSoftware("orders", "librdkafka", "2.16")
        client.send(request(FETCH, 11, 1))
        broker.expect(request(FETCH, 11, 1))
        now = w.reactor.now()
        for _ in range(4):
            connection.sweep(now)
        (line,) = listed(w.plane.connections(), now + 60)["connections"]
    assert (line["client"], line["client_id"], line["software"]) == ("127.0.0.1", "orders", "librdkafka 2.16")
    assert (line["listener"], line["state"], line["serving"]) == ("bootstrap", "passing", None)
    assert (line["in_flight"], line["age_s"], line["quiet_s"]) == (1, 60, 4)
    assert 3 <= line["waits_s"] <= 4
    assert line["request_bytes"] == 2 * len(request(FETCH, 11, 1))


def test_a_request_that_is_served_here_is_named() -> None:
    never = Promise[bytes]()

    async def handle(_call: object) -> bytes:
        return await never

    with world(some_routes(local=handle)) as w:
        client, _ = w.pair()
        client.send(request(LOCAL, 1, 2))
        (connection,) = w.plane.connections()
        w.iterate_until(lambda: connection.in_flight)
        (line,) = listed(w.plane.connections(), w.reactor.now())["connections"]
    assert line["serving"] is not None
    assert line["serving_s"] >= 0


def test_only_connections_of_a_client_are_listed_if_one_is_named() -> None:
    with world() as w:
        w.pair()
        w.pair()
        first, _ = w.plane.connections()
        first.software = ClientSoftware("orders")
        now = w.reactor.now()
        assert [each["connection"] for each in listed(w.plane.connections(), now, "orders")["connections"]] == [
            first.id
        ]
        assert len(listed(w.plane.connections(), now, "127.0.0.1")["connections"]) == 2
        assert listed(w.plane.connections(), now, "nobody") == {"connections": [], "left_out": 0}


def test_connections_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_list, "LISTED_MAX", 1)
    with world() as w:
        w.pair()
        client, _ = w.pair()
        client.send(request(FETCH, 11, 1))
        quiet, busy = w.plane.connections()
        w.iterate_until(lambda: busy.requests.bytes > quiet.requests.bytes)
        page = listed(w.plane.connections(), w.reactor.now())
    assert ([each["connection"] for each in page["connections"]], page["left_out"]) == ([busy.id], 1)
