"""The status page: sections of the proxy, its fleet and its features (app/README.md rules 1 to 6)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from kafka_share_proxy.app.observing import status_html
from kafka_share_proxy.app.serving.composition import ServingParts, advertised
from kafka_share_proxy.feature.status import (
    DETAIL_ROWS_MAX,
    ROWS_MAX,
    Alarm,
    Cell,
    Seconds,
    StatusSection,
    StatusTable,
    first,
)
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.connection_list import described, waiting_longest
from kafka_share_proxy.forwarding.data_plane import Plane

READY, BROKER = ("What", "Ready"), ("Broker", "Address", "Address for clients", "State")
PEERS = ("Proxy", "State")
FIGURES = ("Figure", "Value")
CONNECTION = ("Client", "Client id", "Software", "User", "Broker", "Open for", "In flight", "Waits for", "Serving")
SLICE = 500
"""Connections that are compared before clients are served."""

ReadyProbes = Mapping[bytes, Callable[[], tuple[bool, Mapping[str, Any]]]]


class StatusPage:
    """Source of the page."""

    def __init__(self, parts: Callable[[], ServingParts | None], ready: ReadyProbes) -> None:
        """`parts` returns None until the cluster has responded. `ready`: the readiness probes by path."""
        self._parts, self._ready = parts, ready

    def steps(self, may_change: bool = False) -> Iterator[bytes]:
        """Yield the page in pieces, some of them empty. Clients may be served in between.

        `may_change`: True if the reader may change something.
        """
        yield status_html.HEAD.encode()
        parts = self._parts()
        yield from _encoded(self._readiness(parts))
        if parts is not None:
            yield from _encoded(_proxy(parts))
            yield from _in_steps(_connections(parts.plane), False)
            for feature in parts.features:
                if feature.status is not None:
                    yield from _in_steps(feature.status(), may_change)
        yield status_html.TAIL.encode()

    def _readiness(self, parts: ServingParts | None) -> StatusSection:
        rows: list[tuple[Cell, Cell]] = []
        affected: dict[str, list[str]] = {}
        for path, probe in self._ready.items():
            ready, body = probe()
            name = path.decode().removeprefix("/readyz").strip("/") or "forwarding"
            rows.append((name, "yes" if ready else Alarm("no")))
            for reason in (*body.get("reasons", ()), *body.get("missing", ())):
                affected.setdefault(str(reason), []).append(name)
        notes = [] if parts is not None else ["The cluster has not responded yet."]
        notes += [f"{', '.join(names)}: {reason}" for reason, names in affected.items()]
        return StatusSection("Readiness", notes, (StatusTable("What clients can use", READY, rows),))


def _proxy(parts: ServingParts) -> StatusSection:
    """Return brokers, connections and the other proxies of the fleet."""
    figures = parts.plane.statistics()
    rows: list[tuple[Cell, Cell]] = [
        ("Client connections", figures.connections),
        ("Upstream connections", figures.upstream_connections),
        ("Requests that wait for a response", figures.in_flight),
        ("Requests that this proxy is serving", figures.muted),
        ("Bytes of local responses in memory", figures.local_answer_bytes),
    ]
    if parts.home is not None:
        rows.append(("Partitions of state owned here", len(parts.home.served)))
    tables = [StatusTable("Figures", FIGURES, rows), _brokers(parts)]
    if parts.home is not None and parts.home.links is not None:
        members = sorted(parts.home.links.members.items())
        peers = [(name, Alarm("no link") if link is None else "linked") for name, link in members]
        tables.append(StatusTable("Other proxies of the fleet", PEERS, *first(peers, ROWS_MAX)))
    return StatusSection("This proxy", (f"Clients bootstrap at {advertised(parts.config)}.",), tables)


def _connections(plane: Plane) -> Generator[None, None, StatusSection]:
    """Return the connections of clients that wait longest."""
    here = [each for each in plane.connections() if not each.is_moving]
    shown: list[ForwardedConnection] = []
    for at in range(0, len(here), SLICE):
        shown = waiting_longest((*shown, *here[at : at + SLICE]), DETAIL_ROWS_MAX)
        yield
    rows = [_connection(described(each, plane.reactor.now())) for each in shown]
    return StatusSection("Connections", (), (StatusTable("Waiting longest", CONNECTION, rows, len(here) - len(rows)),))


def _connection(line: Mapping[str, Any]) -> tuple[Cell, ...]:
    who: tuple[Cell, ...] = (line["client"], line["client_id"], line["software"], line["user"], str(line["listener"]))
    return (*who, Seconds(line["age_s"]), line["in_flight"], Seconds(line["waits_s"]), line["serving"])


def _brokers(parts: ServingParts) -> StatusTable:
    """Return the brokers with a listener here, and those that responses omit."""
    book, vanished = parts.services.book, parts.vanished()
    rows: list[tuple[Cell, ...]] = [
        (
            node_id,
            str(upstream),
            str(book.ours_of(node_id)),
            Alarm(vanished[node_id]) if node_id in vanished else "listed",
        )
        for node_id, upstream in sorted(book.nodes.items())
    ]
    left_out = sorted(book.unbound.items())
    rows += [(node_id, str(upstream), None, Alarm("left out: no listener")) for node_id, upstream in left_out]
    return StatusTable("Brokers", BROKER, *first(rows, ROWS_MAX))


def _in_steps(steps: Generator[None, None, StatusSection], may_change: bool) -> Iterator[bytes]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            yield from _encoded(end.value, may_change)
            return
        yield b""


def _encoded(section: StatusSection, may_change: bool = False) -> Iterator[bytes]:
    for piece in status_html.section(section, may_change=may_change):
        yield piece.encode()
