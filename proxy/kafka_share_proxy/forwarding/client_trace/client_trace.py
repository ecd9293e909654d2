"""Trace of one client: its decoded requests and responses, kept until they are read (forwarding/README.md rule 50)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.loop.interfaces import Notes, Timer
from kafka_share_proxy.wire.values import MIB

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.client_trace.exchanges import Entry
    from kafka_share_proxy.forwarding.client_trace.tap import Tap
    from kafka_share_proxy.forwarding.connection import ForwardedConnection
    from kafka_share_proxy.loop.reactor import Reactor

BEGAN, ENDED = "trace-began", "trace-ended"
CONNECTIONS_MAX = 20
"""Maximum number of traced connections at the same time. Further ones of the client are counted."""
UNDECIDED_MAX = 100
"""Maximum number of connections without a first request that may be the client's."""
PAGE_CHARACTERS = 1 << 20
"""Characters of lines after which a page ends."""
LINE_CHARACTERS_MAX = 16 << 10
"""Maximum length of a line. A longer one has no body."""


class TraceLimits(NamedTuple):
    """Limits of a trace. It ends when one is reached."""

    seconds: float = 60.0
    lines: int = 10_000
    bytes: int = 16 * MIB
    """Bytes of memory of all lines, which are kept until the next trace begins."""


class ClientTrace:
    """The current trace, or the one before it."""

    def __init__(
        self, reactor: Reactor, connections: Callable[[], Iterable[ForwardedConnection]], notes: Notes
    ) -> None:
        self._reactor = reactor
        self._connections = connections
        self._notes = notes
        self._limits = TraceLimits()
        self._alarm: Timer | None = None
        self._taps: dict[int, Tap] = {}
        self._undecided: set[int] = set()
        """Connections whose client id is not known yet."""
        self.client = ""
        """Client id or address. Empty before the first trace."""
        self.is_on = False
        self.ended = ""
        """Reason of the end."""
        self.until = 0.0
        self.connections_left_out = 0
        self._lines: list[str] = []
        """JSON objects."""
        self._bytes = 0

    def begin(self, client: str, limits: TraceLimits) -> None:
        """Begin to trace a client, also on its existing connections. Ends the trace before it."""
        self.finish("another trace began")
        self.client, self._limits, self.is_on, self.ended = client, limits, True, ""
        self._lines, self._bytes, self.connections_left_out = [], 0, 0
        self.until = self._reactor.now() + limits.seconds
        self._alarm = self._reactor.call_at(self.until, partial(self.finish, "its time is over"))
        self._notes(BEGAN, client=client, seconds=limits.seconds)
        for connection in list(self._connections()):
            self.admitted(connection)

    def finish(self, reason: str) -> None:
        """End the trace, if there is one. Its lines stay."""
        if not self.is_on:
            return
        self.is_on, self.ended = False, reason
        if self._alarm is not None:
            self._alarm.cancel()
        for tap in self._taps.values():
            tap.end()
        self._taps.clear()
        self._undecided.clear()
        self._notes(ENDED, client=self.client, lines=len(self._lines), reason=reason)

    def admitted(self, connection: ForwardedConnection) -> None:
        """Trace a connection if it is the client's. A new one is decided by its first request."""
        if not self.is_on:
            return
        software = connection.software
        is_known = self.client == connection.client_host or (software is not None and software.client_id == self.client)
        if not is_known and software is not None:
            return
        self._forget_closed()
        decided = len(self._taps) - len(self._undecided)
        if decided >= CONNECTIONS_MAX or len(self._undecided) >= UNDECIDED_MAX:
            self.connections_left_out += 1
            return
        from kafka_share_proxy.forwarding.client_trace.tap import Tap

        if not is_known:
            self._undecided.add(connection.id)
        tap = self._taps[connection.id] = Tap(connection, self._record)
        tap.begin()

    def after(self, number: int) -> Mapping[str, Any]:
        """Return the state of the trace, and some of its lines, after the first `number`."""
        return {
            "client": self.client,
            "on": self.is_on,
            "ended": self.ended,
            "seconds_left": max(round(self.until - self._reactor.now(), 3), 0) if self.is_on else 0,
            "connections_left_out": self.connections_left_out,
            "lines": self._page(number),
        }

    def _page(self, first: int) -> list[str]:
        page, characters = [], 0
        for line in islice(self._lines, first, None):
            if characters > PAGE_CHARACTERS:
                break
            page.append(line)
            characters += len(line)
        return page

    def _record(self, tap: Tap, entry: Entry) -> None:
        connection = tap.connection
        if not self.is_on or self._taps.get(connection.id) is not tap:
            return
        if connection.id in self._undecided and not self._decide(tap, entry):
            return
        head = {"at": round(time.time(), 6), "connection": connection.id, "client": connection.client_host}
        line = json.dumps(head | entry)
        if len(line) > LINE_CHARACTERS_MAX:
            entry.pop("body", None)
            line = json.dumps(head | entry | {"not_decoded": f"longer than {LINE_CHARACTERS_MAX} characters"})
        self._lines.append(line)
        self._bytes += len(line)
        if len(self._lines) >= self._limits.lines or self._bytes >= self._limits.bytes:
            self._reactor.call_soon(connection, partial(self.finish, "it has reached a limit of trace"))

    def _decide(self, tap: Tap, entry: Entry) -> bool:
        """Return True if the connection is the client's, by its first request."""
        self._undecided.discard(tap.connection.id)
        if entry.get("client_id") == self.client:
            return True
        del self._taps[tap.connection.id]
        self._reactor.call_soon(tap.connection, tap.end)  # not within the walk
        return False

    def _forget_closed(self) -> None:
        for number in [number for number, tap in self._taps.items() if tap.connection.closed]:
            del self._taps[number]
            self._undecided.discard(number)
