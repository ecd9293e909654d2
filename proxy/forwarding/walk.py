"""Frame boundaries of one connection, in Python: what `_walk.c` does, for where that could not be built.

Theory of operation. Two walks over one receive buffer, one per direction, share a queue: a walk over requests appends
(correlation id, what is expected) for each that will be answered, a walk over answers takes it from the front.
`receive` says up to where the bytes may pass on as they are. It judges nothing: whatever does not simply pass, a head
that has not come whole and an impossible size included, ends the walk, and `ClientRequests` or `BrokerAnswers` says
what it is. No event objects, no copies: a frame is two numbers.

The buffer may be longer than `end`: what stands behind is old and is never believed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

_request_head = struct.Struct(">i4si").unpack_from
_answer_head = struct.Struct(">ii").unpack_from

IN_FLIGHT_MAX = (1 << 31) - 1


class Expected(Protocol):
    """What an answer is for. `rewrite` None: it passes on as its bytes come; else it is handled by the caller."""

    @property
    def rewrite(self) -> object | None:
        """Not None: the answer is gathered."""


Look = Callable[[memoryview, int, int, int], Expected | None]
"""(buffer, where the frame begins, where what has come of it ends, where it will end) -> what is expected as its answer
(`Table.silent`: nothing); None: more bytes are needed, or it has to be gathered. May change bytes of the frame in
place."""


def room(size: int) -> memoryview:
    """Room for so many bytes, of any content; in C, large rooms that nobody holds any more are given again."""
    return memoryview(bytearray(size))


class Pending(deque[tuple[int, Expected]]):
    """Requests that wait for their answer, oldest first: (correlation id, what is expected)."""


class Table:
    """Which requests pass by their first four bytes (API key and version). One for all connections, never changed."""

    __slots__ = ("looked", "plain", "silent")

    def __init__(self, plain: Mapping[bytes, Expected], looked: Mapping[bytes, Look], silent: Expected) -> None:
        """`looked` are looked into first; one of them that says `silent` will have no answer."""
        self.plain, self.looked, self.silent = plain, looked, silent


class _Walk:
    """What both directions have."""

    __slots__ = ("bytes", "flows", "frame_max", "in_flight_max", "left", "pending", "quiet_s")

    def __init__(self, pending: Pending, frame_max: int) -> None:
        self.pending = pending
        self.frame_max = frame_max
        self.left = 0
        """Bytes of a frame that passes which are still to come."""
        self.bytes = 0
        """Passed on so far."""
        self.flows = False
        """Nothing is in the way: the fast path may be taken."""
        self.quiet_s = 0
        """Sweeps (seconds) since the last byte."""
        self.in_flight_max = IN_FLIGHT_MAX
        """More requests than this wait: no more is read."""


class RequestWalk(_Walk):
    """Over what a client sends."""

    __slots__ = ("_table",)

    def __init__(self, pending: Pending, table: Table, frame_max: int) -> None:
        super().__init__(pending, frame_max)
        self._table = table

    def use(self, table: Table) -> None:
        """From the next frame on, go by this table."""
        self._table = table

    def receive(self, buffer: memoryview, start: int, end: int) -> int:
        """Walk buffer[start:end]; everything before the returned position passes on as it is.

        Raises:
            whatever a `Look` of the table raises.
        """
        at = start + self.left
        table, frame_max = self._table, self.frame_max
        while at + 12 <= end:
            size, name, correlation_id = _request_head(buffer, at)
            if not 8 <= size <= frame_max:
                break
            expected = table.plain.get(name)
            if expected is None:
                look = table.looked.get(name)
                behind = at + size + 4
                if look is None or (expected := look(buffer, at, min(behind, end), behind)) is None:
                    break
            if expected is not table.silent:
                self.pending.append((correlation_id, expected))
            at += size + 4
        self.left = max(at - end, 0)
        return min(at, end)


class AnswerWalk(_Walk):
    """Over what a broker sends, which answers strictly in the order of the requests."""

    __slots__ = ()

    def receive(self, buffer: memoryview, start: int, end: int) -> int:
        """Walk buffer[start:end]; everything before the returned position passes on as it is."""
        at = start + self.left
        pending, frame_max = self.pending, self.frame_max
        while at + 8 <= end and pending:
            size, correlation_id = _answer_head(buffer, at)
            asked, expected = pending[0]
            if expected.rewrite is not None or correlation_id != asked or not 4 <= size <= frame_max:
                break
            pending.popleft()
            at += size + 4
        self.left = max(at - end, 0)
        return min(at, end)
