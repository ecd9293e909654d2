"""Which connections a worker gives to one that has replaced another."""

from __future__ import annotations

from collections import Counter

from kafka_share_proxy.forwarding import fair_share
from kafka_share_proxy.forwarding.client_software import ClientSoftware

from tests.forwarding.plane_world import world


def test_one_of_as_many_as_there_are_workers_is_given_and_of_each_client() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(12)]
        for number, connection in enumerate(w.plane.connections()):
            connection.software = ClientSoftware("aabb"[number % 4])
        for workers, each in ((2, 3), (3, 2)):
            given = fair_share.surplus(w.plane.connections(), workers)
            clients = Counter(connection.software.client_id for connection in given if connection.software)
            assert clients == {"a": each, "b": each}
        for client, _ in pairs:
            client.close()


def test_of_a_client_with_connections_that_stay_another_one_is_given() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(4)]
        connections = list(w.plane.connections())
        for number, connection in enumerate(connections):
            connection.software = ClientSoftware("abab"[number])
        connections[0].moves = 1
        assert fair_share.surplus(connections, 2) == [connections[2], connections[1]]
        for client, _ in pairs:
            client.close()


def test_clients_with_one_connection_each_give_some_of_these() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(6)]
        for number, connection in enumerate(w.plane.connections()):
            connection.software = ClientSoftware(str(number))
        assert len(fair_share.surplus(w.plane.connections(), 3)) == 2
        for client, _ in pairs:
            client.close()


def test_a_client_does_not_give_everything_for_others_that_cannot() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(10)]
        for number, connection in enumerate(w.plane.connections()):
            connection.software = ClientSoftware("a" if number < 6 else "b")
            connection.moves = int(number < 6)
        assert len(fair_share.surplus(w.plane.connections(), 2)) == 2
        for client, _ in pairs:
            client.close()


def test_a_connection_that_has_not_reached_its_broker_stays() -> None:
    with world() as w:
        peer = w.client()
        assert fair_share.surplus(w.plane.connections(), 1) == []
        peer.close()
