"""Division of connections among workers: which may serve one, and which are moved (app/README.md rule 23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from math import ceil
from typing import TYPE_CHECKING
from zlib import crc32

from kafka_share_proxy.forwarding import moved_connection
from kafka_share_proxy.forwarding.drain_order import by_client, client_of

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

SETTLED_S = 1.0
"""Age at which a connection is looked at: by then it has a client id and a broker, or has ended."""

Placement = tuple[int, "ForwardedConnection"]
"""Place of a worker, and the connection that it should continue."""


@dataclass(frozen=True, slots=True)
class WorkerPlaces:
    """Places of all workers, and the brokers whose connections are divided among them."""

    own: int
    """Place of this worker."""
    count: int
    """Number of places."""
    node_ids: tuple[int, ...]
    """Node ids of the brokers, in ascending order."""

    def of(self, connection: ForwardedConnection) -> list[int]:
        """Return the places that may serve a connection: those of its broker, or all if it has none yet.

        Brokers and places divide the same circle, which begins elsewhere for each client. So the connections of a
        client to its first and to its last broker have different places.
        """
        if connection.is_bootstrap or connection.node_id not in self.node_ids:
            return list(range(self.count))
        rank, nodes = self.node_ids.index(connection.node_id), len(self.node_ids)
        begin = crc32("{} {}".format(*client_of(connection)).encode())
        return [(begin + place) % self.count for place in _overlapping(rank, nodes, self.count)]


def _overlapping(rank: int, parts: int, places: int) -> range:
    """Return the places that overlap one of as many parts of the same circle."""
    return range(rank * places // parts, -(-(rank + 1) * places // parts))


class FairShare:
    """Connections of one worker that it has compared with the places of all."""

    def __init__(self) -> None:
        self._places: WorkerPlaces | None = None
        self._checked = 0
        """Highest id of a connection that was compared with these places."""

    def misplaced(
        self, connections: Iterable[ForwardedConnection], places: WorkerPlaces, now: float
    ) -> list[Placement]:
        """Return the connections that others should serve, once for each. `connections`: by ascending id."""
        if places != self._places:
            self._places, self._checked = places, 0
        fresh = (connection for connection in connections if connection.id > self._checked)
        settled = list(takewhile(lambda connection: now - connection.timeouts.opened_at >= SETTLED_S, fresh))
        if settled:
            self._checked = settled[-1].id
        return [
            (allowed[connection.id % len(allowed)], connection)
            for connection in settled
            if places.own not in (allowed := places.of(connection)) and moved_connection.can_be_given(connection)
        ]


def share_of(new: int, connections: Iterable[ForwardedConnection], places: WorkerPlaces) -> list[Placement]:
    """Return the connections for the worker at the place `new`, which has replaced another and has none."""
    shared = defaultdict(list)
    for connection in connections:
        allowed = places.of(connection)
        if new in allowed and places.own in allowed:
            shared[len(allowed)].append(connection)
    return [(new, connection) for workers, alike in shared.items() for connection in surplus(alike, workers)]


def surplus(connections: Iterable[ForwardedConnection], workers: int) -> list[ForwardedConnection]:
    """Return one of `workers` connections of each client, and of clients with fewer one in total, if they can move."""
    surplus_connections: list[ForwardedConnection] = []
    due = 0
    for own in by_client(connections):
        due += len(own)
        movable = list(filter(moved_connection.can_be_given, own))
        count = min(due // workers, ceil(len(own) / workers), len(movable))
        surplus_connections += movable[:count]
        due -= count * workers
    return surplus_connections
