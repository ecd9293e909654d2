"""The client's half of a connection: what the requests are at which the walk over its bytes stopped.

`receive` (`walk.RequestWalk`) says up to where the bytes may pass on as they are. It stops before a frame that does not
simply pass (served here, inspected, refused, SASL, an API the table does not list) and before a head that has not come
whole. The caller then asks `peek` what stands there and either lets it pass (`admit`) or gathers it, and goes on behind
it. Correlation ids are never changed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxy.errors import RemoteProtocolError
from proxy.link.framing import REQUEST_HEAD, REQUEST_MIN, SIZE, wrong_size
from proxy.link.produce import HEAD_MAX, AcksLayout, read_acks
from proxy.link.walk import Expected, Look
from proxy.link.walking import Pending, RequestWalk, Table

_int16 = struct.Struct(">h").unpack_from


class Silent:
    """Said of a request that will have no answer."""

    __slots__ = ()
    rewrite = None


SILENT = Silent()


class Passing:
    """Which requests pass by their first four bytes (API key and version). One for all connections, never changed."""

    __slots__ = ("produce", "table")

    def __init__(
        self, plain: Mapping[bytes, Expected], looked: Mapping[bytes, Look], produce: frozenset[bytes]
    ) -> None:
        """`looked` are looked into first; those of them in `produce` pass as soon as the bytes reach their acks."""
        self.table = Table(plain, looked, SILENT)
        self.produce = produce
        """They are never gathered."""


NOTHING_PASSES = Passing({}, {}, frozenset())


class AcksLook:
    """Produce: without acks there is no answer. What producers without transactions send is read at once."""

    __slots__ = ("_layout", "absent", "expected")

    def __init__(self, layout: AcksLayout, expected: Expected) -> None:
        self._layout = layout
        self.expected = expected
        self.absent = None if layout.strings != 1 else 0 if layout.flexible else 0xFF
        """Comes twice behind the client id where nothing is transactional: no tags and no transactional id, or only
        the latter. None: this version is always read the long way."""

    def __call__(self, buffer: memoryview, at: int, end: int, _frame_end: int) -> Expected | None:
        """See `walk.Look`."""
        absent = self.absent
        if absent is not None and at + 18 <= end:
            client_id = _int16(buffer, at + 12)[0]
            behind = at + 14 + client_id if client_id > 0 else at + 14
            if client_id >= -1 and behind + 4 <= end and buffer[behind] == absent and buffer[behind + 1] == absent:
                return self.expected if _int16(buffer, behind + 2)[0] else SILENT
        acks = read_acks(self._layout, buffer, at, end)
        return self.expected if acks else None if acks is None else SILENT


def look_to_amend(amend: Callable[[memoryview], Expected | None], expected: Expected) -> Look:
    """A request that has come whole is shown to `amend`, without its size; it may say what else is expected."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        return amend(buffer[at + 4 : end]) or expected

    return look


def look_to_inspect(serve_here: Callable[[memoryview], bool], forward: Look) -> Look:
    """A request that has come whole and is not served here passes; `forward` says what is expected as its answer."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end or serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return look


def look_at_beginning(serve_here: Callable[[memoryview], bool], forward: Look) -> Look:
    """As `look_to_inspect`, for requests too long to wait for: `serve_here` gets what has come of the frame, and says
    yes where that is not enough to tell; the request is gathered then, and it is asked again."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if serve_here(buffer[at + 4 : end]):
            return None
        return forward(buffer, at, end, frame_end)

    return look


class Head(NamedTuple):
    """The beginning of a request that `receive` stopped at."""

    size: int
    """Without the 4 size bytes."""
    name: bytes
    """API key and version; empty for a raw SASL token too short to have one."""
    correlation_id: int


class Downstream(RequestWalk):
    """Frame boundaries of one client."""

    __slots__ = ("_produce", "raw")

    def __init__(self, pending: Pending, passing: Passing, frame_max: int) -> None:
        super().__init__(pending, passing.table, frame_max)
        self._produce = passing.produce
        self.raw = False
        """SASL tokens without Kafka headers may come (handshake v0)."""

    def go_by(self, passing: Passing) -> None:
        """From the next frame on."""
        self.use(passing.table)
        self._produce = passing.produce

    def peek(self, buffer: memoryview, at: int, end: int) -> Head | None:
        """What stands at a position `receive` stopped at; None when more bytes are needed to say so.

        Raises:
            RemoteProtocolError: an impossible size.
        """
        if end - at < SIZE.size:
            return None
        size: int = SIZE.unpack_from(buffer, at)[0]
        smallest = 0 if self.raw else REQUEST_MIN
        if not smallest <= size <= self.frame_max:
            raise wrong_size(size, self.frame_max, smallest)
        if size < REQUEST_MIN:
            return Head(size, b"", 0)
        if end - at < REQUEST_HEAD.size:
            return None
        head = Head(*REQUEST_HEAD.unpack_from(buffer, at))
        if head.name in self._produce:
            if end - at >= min(size + SIZE.size, HEAD_MAX):
                raise RemoteProtocolError("Produce request without acks")
            return None
        return head

    def admit(self, size: int, at: int, end: int) -> int:
        """Let the frame at `at` pass; return up to where its bytes have come. The caller has queued its answer."""
        behind = at + size + SIZE.size
        if behind > end:
            self.left = behind - end
            return end
        return behind
