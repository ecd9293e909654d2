"""When each connection is closed while others take its clients over (app/README.md rule 15)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Times at which connections are closed one after the other."""

    delay_s: float = 0.0
    """Seconds before the first one. By then no process that drains accepts the client again."""
    seconds: float
    """Seconds between the delay and the last one."""
    share: float = 0.0
    """Part of the time between two connections that this process waits, so that not all close one together."""


def client_of(connection: ForwardedConnection) -> tuple[str, str | None]:
    """Return the address and the client id that distinguish clients. None: it has not named one."""
    software = connection.software
    return connection.client_host, None if software is None else software.client_id


def by_client(connections: Iterable[ForwardedConnection]) -> Iterable[list[ForwardedConnection]]:
    """Return the connections of each client."""
    clients = defaultdict(list)
    for connection in connections:
        clients[client_of(connection)].append(connection)
    return clients.values()


def due(connections: Iterable[ForwardedConnection], spread: Spread) -> Iterator[tuple[ForwardedConnection, float]]:
    """Yield each connection with the seconds until its end. Those of one client are far apart."""
    ordered = [each for each in chain(*zip_longest(*by_client(connections))) if each is not None]
    for place, connection in enumerate(ordered):
        yield connection, spread.delay_s + spread.seconds * (place + spread.share) / len(ordered)
