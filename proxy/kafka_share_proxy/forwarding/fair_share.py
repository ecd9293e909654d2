"""Choice of the connections that a worker gives to one that has replaced another (app/README.md rule 23)."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding import moved_connection
from kafka_share_proxy.forwarding.drain_order import by_client

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection


def surplus(connections: Iterable[ForwardedConnection], workers: int) -> list[ForwardedConnection]:
    """Return one of `workers` connections of each client, and of clients with fewer one in total, if they can move."""
    given: list[ForwardedConnection] = []
    due = 0
    for own in by_client(connections):
        due += len(own)
        movable = list(filter(moved_connection.can_be_given, own))
        count = min(due // workers, ceil(len(own) / workers), len(movable))
        given += movable[:count]
        due -= count * workers
    return given
