"""Description of client connections for operators: who is connected, with what, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.wire.definitions import registry

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

LISTED_MAX = 500
"""Maximum number of connections in a list."""


def listed(connections: Iterable[ForwardedConnection], now: float, client: str = "") -> dict[str, Any]:
    """Return the connections that wait longest, then those with most bytes.

    `client`: only connections of this address or client id. Empty: all.
    """
    here = (each for each in connections if not each.is_moving)
    chosen = [each for each in here if not client or client in (each.client_host, _client_id(each))]
    shown = waiting_longest(chosen, LISTED_MAX)
    return {"connections": [described(each, now) for each in shown], "left_out": len(chosen) - len(shown)}


def waiting_longest(connections: Iterable[ForwardedConnection], count: int) -> list[ForwardedConnection]:
    """Return this many connections, those that wait longest first."""
    return nlargest(count, connections, key=_order)


def _order(connection: ForwardedConnection) -> tuple[float, int]:
    return connection.timeouts.waits_s, connection.requests.bytes + connection.responses.bytes


def lines_waiting_longest(lines: Iterable[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return this many lines of `described` in the same order, for lists of several workers."""
    return nlargest(count, lines, key=lambda line: (line["waits_s"], line["request_bytes"] + line["response_bytes"]))


def _client_id(connection: ForwardedConnection) -> str:
    return "" if connection.software is None else connection.software.client_id


def described(connection: ForwardedConnection, now: float) -> dict[str, Any]:
    """Return the line of a connection."""
    software, serving = connection.software, connection.serving()
    return {
        "connection": connection.id,
        "client": connection.client_host,
        "client_id": None if software is None else software.client_id,
        "software": None if software is None else f"{software.name} {software.version}".strip(),
        "user": connection.sasl.user,
        "listener": "bootstrap" if connection.is_bootstrap else connection.node_id,
        "age_s": round(now - connection.timeouts.opened_at),
        "quiet_s": connection.requests.quiet_s,
        "request_bytes": connection.requests.bytes,
        "response_bytes": connection.responses.bytes,
        "in_flight": connection.in_flight,
        "waits_s": connection.timeouts.waits_s,
        "unsent_bytes": connection.unsent,
        "state": connection.state.now.name.lower(),
        "serving": None if serving is None else registry.API_KEYS.get(serving[0], str(serving[0])),
        "serving_s": None if serving is None else round(serving[1], 3),
    }
