"""Frame boundaries of one connection: the Python fallback of `_walk.c`.

Two walks over one receive buffer, one per direction, share a queue. A walk over requests appends an entry for each
request that will have a response. A walk over responses removes it from the front. `receive` stops at any other frame,
an incomplete head or an impossible size, and `ClientRequests` or `BrokerResponses` describes the reason. Bytes of the
buffer after `end` are never used.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

_request_head = struct.Struct(">i4si").unpack_from
_response_head = struct.Struct(">ii").unpack_from

INSPECTIONS_MAX = 16
"""Maximum number of frames that one call of `receive` inspects (in C: by an `Inspect` in Python).

The caller then checks the time, and calls it again.
"""

IN_FLIGHT_MAX = (1 << 31) - 1


class Expected(Protocol):
    """Entry of the pending queue: what a response is for."""

    @property
    def rewrite(self) -> object | None:
        """None: the response is forwarded as it arrives."""


Inspect = Callable[[memoryview, int, int, int], Expected | None]
"""Function of (buffer, frame begin, end of its received bytes, frame end) that returns its expected entry.

It returns `Table.silent` if there is no response, and None if more bytes are needed or the frame has to be gathered. It
may change bytes of the frame in place.
"""


def room(size: int) -> memoryview:
    """Return memory with any content. In C, large blocks are reused."""
    return memoryview(bytearray(size))


class Pending(deque[tuple[int, Expected]]):
    """Requests that wait for a response, oldest first."""


class Table:
    """Requests that can be forwarded, by their first four bytes (API key and version). Immutable."""

    __slots__ = ("inspected", "plain", "silent")

    def __init__(self, plain: Mapping[bytes, Expected], inspected: Mapping[bytes, Inspect], silent: Expected) -> None:
        """`inspected` requests are inspected first. If the inspection returns `silent`, there is no response."""
        self.plain, self.inspected, self.silent = plain, inspected, silent


class _Walk:
    """Walk over the bytes of one connection, in both directions."""

    __slots__ = ("bytes", "flows", "frame_max", "in_flight_max", "missing", "pending", "quiet_s")

    def __init__(self, pending: Pending, frame_max: int) -> None:
        self.pending = pending
        self.frame_max = frame_max
        self.missing = 0
        self.bytes = 0
        self.flows = False
        self.quiet_s = 0
        """Sweeps (seconds) since the last byte."""
        self.in_flight_max = IN_FLIGHT_MAX


class RequestWalk(_Walk):
    """Walk over the bytes of a client."""

    __slots__ = ("_table",)

    def __init__(self, pending: Pending, table: Table, frame_max: int) -> None:
        super().__init__(pending, frame_max)
        self._table = table

    def use(self, table: Table) -> None:
        self._table = table

    def receive(self, buffer: memoryview, start: int, end: int) -> int:
        """Return up to where the bytes can be forwarded unchanged. After a position beyond `start`, call again from
        there.
        """
        at = start + self.missing
        table, frame_max, inspections = self._table, self.frame_max, 0
        while at + 12 <= end:
            size, name, correlation_id = _request_head(buffer, at)
            if not 8 <= size <= frame_max:
                break
            expected = table.plain.get(name)
            if expected is None:
                inspect = table.inspected.get(name)
                behind = at + size + 4
                inspections += 1
                if (
                    inspect is None
                    or inspections > INSPECTIONS_MAX
                    or (expected := inspect(buffer, at, min(behind, end), behind)) is None
                ):
                    break
            if expected is not table.silent:
                self.pending.append((correlation_id, expected))
            at += size + 4
        self.missing = max(at - end, 0)
        return min(at, end)


class ResponseWalk(_Walk):
    """Walk over the bytes of a broker, which responds strictly in the order of the requests."""

    __slots__ = ()

    def receive(self, buffer: memoryview, start: int, end: int) -> int:
        """Return up to where the bytes can be forwarded unchanged."""
        at = start + self.missing
        pending, frame_max = self.pending, self.frame_max
        while at + 8 <= end and pending:
            size, correlation_id = _response_head(buffer, at)
            next_id, expected = pending[0]
            if expected.rewrite is not None or correlation_id != next_id or not 4 <= size <= frame_max:
                break
            pending.popleft()
            at += size + 4
        self.missing = max(at - end, 0)
        return min(at, end)
