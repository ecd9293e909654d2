"""Admission of clients: limits of connections. With TLS server names and load balancers: test_one_port."""

from __future__ import annotations

import socket

from kafka_share_proxy.forwarding.limits import Limits

from tests.forwarding.plane_world import world


def test_one_address_gets_at_most_its_limit_and_all_of_it_again() -> None:
    with world(limits=Limits(connections_per_address=2)) as w:
        first, second = w.client(), w.client()
        w.iterate_until(lambda: w.plane.statistics().connections == 2)
        w.peer(socket.create_connection(("127.0.0.1", w.port))).expect_end()
        ((_, context),) = [noted for noted in w.notes if noted[0] == "connection-limit"]
        assert context["reason"] == "limits.connections_per_address (2) is reached"
        first.close()
        w.iterate_until(lambda: w.plane.statistics().connections == 1)
        w.client()
        w.iterate_until(lambda: w.plane.statistics().connections == 2)
        second.close()
        w.iterate_until(lambda: w.plane.statistics().connections == 1)
        assert sum(w.plane.admission._by_address.values()) == 1


def test_a_side_that_still_sends_after_its_connection_ended_counts_as_one() -> None:
    """It keeps its descriptor until its peer has taken all."""
    with world(limits=Limits(connections=2)) as w:
        w.pair()
        (connection,) = w.plane._connections.values()
        connection.to_client(bytes(64 << 20))  # more than the kernel takes
        connection.broker_left(None)
        assert (len(w.plane._lingering), w.plane.statistics().connections) == (1, 0)
        w.client()
        w.iterate_until(lambda: w.plane.statistics().connections == 1)
        w.peer(socket.create_connection(("127.0.0.1", w.port))).expect_end()


def test_a_client_too_many_is_closed_with_a_note() -> None:
    with world(limits=Limits(connections=2)) as w:
        clients = [w.client(), w.client()]
        sock = socket.create_connection(("127.0.0.1", w.port))
        third = w.peer(sock)
        third.expect_end()
        assert w.events() == ["connection-limit"]
        clients[0].close()
        w.iterate_until(lambda: w.plane.statistics().connections == 1)
        w.client()
