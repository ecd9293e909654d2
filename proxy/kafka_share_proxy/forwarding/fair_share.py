"""Choice of the connections that a worker gives to one that has replaced another (app/README.md rule 23)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding import moved_connection

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection


def surplus(connections: Iterable[ForwardedConnection], workers: int) -> list[ForwardedConnection]:
    """Return every `workers`-th connection of those that can be given, in the order of their clients."""
    ordered = sorted(filter(moved_connection.can_be_given, connections), key=_order)
    return ordered[workers - 1 :: workers]


def _order(connection: ForwardedConnection) -> tuple[str, str, int]:
    software = connection.software
    return connection.client_host, "" if software is None else software.client_id or "", connection.id
