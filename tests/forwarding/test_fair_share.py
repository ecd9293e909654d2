"""Which of several workers serve a connection, and those that one gives to others."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_share_proxy.forwarding import fair_share
from kafka_share_proxy.forwarding.client_software import ClientSoftware
from kafka_share_proxy.forwarding.fair_share import SETTLED_S, FairShare, WorkerPlaces

from tests.forwarding.plane_world import UPSTREAM, world

HOSTS = [f"10.0.0.{number}" for number in range(40)]


def connected(host: str, node_id: int, *, is_bootstrap: bool = False) -> Any:
    """A connection, with what decides its places."""
    software = ClientSoftware("rdkafka")
    return SimpleNamespace(client_host=host, node_id=node_id, is_bootstrap=is_bootstrap, software=software)


@pytest.mark.parametrize(("workers", "nodes"), [(2, 2), (2, 3), (3, 3), (4, 3), (4, 6), (16, 3)])
def test_the_end_of_one_worker_cuts_no_client_off_from_all_brokers(workers: int, nodes: int) -> None:
    node_ids = tuple(range(1, nodes + 1))
    places = WorkerPlaces(0, workers, node_ids)
    for host in HOSTS:
        first, *_, last = (set(places.of(connected(host, node_id))) for node_id in node_ids)
        assert not first & last


@pytest.mark.parametrize(("workers", "nodes"), [(2, 1), (2, 3), (3, 2), (4, 6), (16, 3), (5, 7)])
def test_all_workers_serve_the_same_number_of_connections(workers: int, nodes: int) -> None:
    """The places of one broker divide its connections equally here."""
    node_ids = tuple(range(nodes))
    places = WorkerPlaces(0, workers, node_ids)
    loads = Counter[int]()
    for host in HOSTS:
        of_client = [places.of(connected(host, node_id)) for node_id in node_ids]
        assert set().union(*of_client) == set(range(workers))
        for allowed in of_client:
            loads.update({place: 1 / len(allowed) for place in allowed})
    assert max(loads.values()) <= 1.5 * min(loads.values())


def test_connections_of_the_bootstrap_address_or_one_broker_are_served_by_any_worker() -> None:
    assert WorkerPlaces(0, 3, (1, 2)).of(connected("a", 1, is_bootstrap=True)) == [0, 1, 2]
    assert WorkerPlaces(0, 3, (1, 2)).of(connected("a", 7)) == [0, 1, 2], "of a broker that is not known yet"
    assert sorted(WorkerPlaces(0, 3, (1,)).of(connected("a", 1))) == [0, 1, 2]


def test_a_connection_that_another_worker_should_serve_is_given_once_it_is_settled() -> None:
    with world() as w:
        ports = [w.plane.ports.listen(node_id, "127.0.0.1", 0, lambda: [UPSTREAM]) for node_id in (1, 2)]
        pairs = [w.pair(port) for port in (w.port, *ports)]
        share, now = FairShare(), w.reactor.now()
        places = [WorkerPlaces(own, 2, w.plane.ports.node_ids) for own in (0, 1)]
        assert share.misplaced(w.plane.connections(), places[0], now) == []
        now += SETTLED_S
        placements = [FairShare().misplaced(w.plane.connections(), each, now) for each in places]
        assert [place for each in placements for place, _ in each] == [1, 0]
        assert sorted(connection.node_id for each in placements for _, connection in each) == [1, 2]
        assert share.misplaced(w.plane.connections(), places[0], now) == placements[0]
        assert share.misplaced(w.plane.connections(), places[0], now) == [], "each once"
        assert share.misplaced(w.plane.connections(), places[1], now) == placements[1], "for other places all again"
        for client, _ in pairs:
            client.close()


def test_a_new_connection_is_considered_after_earlier_ones() -> None:
    with world() as w:
        ports = [w.plane.ports.listen(node_id, "127.0.0.1", 0, lambda: [UPSTREAM]) for node_id in (1, 2)]
        pairs = [w.pair(port) for port in ports]
        first, second = w.plane.connections()
        own = next(own for own in (0, 1) if WorkerPlaces(own, 2, (1, 2)).of(second) != [own])
        places = WorkerPlaces(own, 2, (1, 2))
        share, now = FairShare(), second.timeouts.opened_at + SETTLED_S
        first.timeouts.opened_at, second.timeouts.opened_at = now - SETTLED_S, now
        assert share.misplaced(w.plane.connections(), places, now) == []
        assert share.misplaced(w.plane.connections(), places, now + SETTLED_S) == [(1 - own, second)]
        for client, _ in pairs:
            client.close()


def test_a_worker_that_has_replaced_another_gets_a_share_of_what_both_may_serve() -> None:
    with world() as w:
        ports = [w.plane.ports.listen(node_id, "127.0.0.1", 0, lambda: [UPSTREAM]) for node_id in (1, 2)]
        pairs = [w.pair(port) for port in (w.port, *ports, w.port)]
        placements = fair_share.share_of(1, w.plane.connections(), WorkerPlaces(0, 2, (1, 2)))
        assert [(place, connection.is_bootstrap) for place, connection in placements] == [(1, True)]
        for client, _ in pairs:
            client.close()


def test_one_of_as_many_as_there_are_workers_is_given_and_of_each_client() -> None:
    with world() as w:
        pairs = [w.pair() for _ in range(12)]
        for number, connection in enumerate(w.plane.connections()):
            connection.software = ClientSoftware("aabb"[number % 4])
        for workers, each in ((2, 3), (3, 2)):
            placements = fair_share.surplus(w.plane.connections(), workers)
            clients = Counter(connection.software.client_id for connection in placements if connection.software)
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
