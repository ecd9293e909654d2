"""The client's half of a connection: where its requests begin, and what each of them is.

Theory of operation. `receive` walks frame boundaries over the receive buffer and says up to where the bytes may pass
on as they are. It stops before a frame that does not simply pass (served here, inspected, refused, SASL, an API the
table does not list) and before a head that has not come whole. The caller then asks `peek` what stands there and either
lets it pass (`admit`) or gathers it, and goes on behind it. No event objects, no copies: a frame is two numbers.

Both halves share one queue: `receive` appends (correlation id, what is expected) for each request that will be
answered, `Upstream` takes it from the front. Correlation ids are never changed.

The buffer may be longer than `end`: what stands behind is old and is never believed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from proxy.errors import RemoteProtocolError
from proxy.link.framing import REQUEST_HEAD, REQUEST_MIN, SIZE, wrong_size
from proxy.link.produce import HEAD_MAX, AcksLayout, read_acks

_head = REQUEST_HEAD.unpack_from
_int16 = struct.Struct(">h").unpack_from


class Expected(Protocol):
    """What an answer is for. `rewrite` None: it passes on as its bytes come; else it is handled by the caller."""

    @property
    def rewrite(self) -> object | None:
        """Not None: the answer is gathered."""


Pending = deque[tuple[int, Expected]]
"""Requests that wait for their answer, in the order in which the broker will give them."""


class Silent:
    """Said of a request that will have no answer."""

    __slots__ = ()
    rewrite = None


SILENT = Silent()

Look = Callable[[memoryview, int, int, int], Expected | None]
"""(buffer, where the frame begins, where what has come of it ends, where it will end) -> what is expected as its answer
(SILENT: nothing); None: more bytes are needed, or it has to be gathered. May change bytes of the frame in place."""


class Passing(NamedTuple):
    """Which requests pass by their first four bytes (API key and version). One for all connections, never changed."""

    plain: Mapping[bytes, Expected]
    looked: Mapping[bytes, Look]
    """These are looked into first."""
    produce: frozenset[bytes]
    """Those of `looked` that pass as soon as the bytes reach their acks: they are never gathered."""


NOTHING_PASSES = Passing({}, {}, frozenset())


def look_for_acks(layout: AcksLayout, expected: Expected) -> Look:
    """Produce: without acks there is no answer. What producers without transactions send is read at once."""
    usual = layout.strings == 1
    absent = 0 if layout.flexible else 0xFF  # twice: no tags and no transactional id, or only the latter

    def look(buffer: memoryview, at: int, end: int, _frame_end: int) -> Expected | None:
        if usual and at + 18 <= end:
            client_id = _int16(buffer, at + 12)[0]
            behind = at + 14 + client_id if client_id > 0 else at + 14
            if client_id >= -1 and behind + 4 <= end and buffer[behind] == absent and buffer[behind + 1] == absent:
                return expected if _int16(buffer, behind + 2)[0] else SILENT
        acks = read_acks(layout, buffer, at, end)
        return expected if acks else None if acks is None else SILENT

    return look


def look_to_amend(amend: Callable[[memoryview], Expected | None], expected: Expected) -> Look:
    """A request that has come whole is shown to `amend`, without its size; it may say what else is expected."""

    def look(buffer: memoryview, at: int, end: int, frame_end: int) -> Expected | None:
        if end < frame_end:
            return None
        return amend(buffer[at + 4 : end]) or expected

    return look


class Head(NamedTuple):
    """The beginning of a request that `receive` stopped at."""

    size: int
    """Without the 4 size bytes."""
    name: bytes
    """API key and version; empty for a raw SASL token too short to have one."""
    correlation_id: int


class Downstream:
    """Frame boundaries of one client."""

    __slots__ = ("_frame_max", "_looked", "_plain", "_produce", "left", "pending", "raw")

    def __init__(self, pending: Pending, passing: Passing, frame_max: int) -> None:
        self.pending = pending
        self._frame_max = frame_max
        self.left = 0
        """Bytes of a frame that passes which are still to come."""
        self.raw = False
        """SASL tokens without Kafka headers may come (handshake v0)."""
        self.use(passing)

    def use(self, passing: Passing) -> None:
        """From the next frame on, go by this table."""
        self._plain = passing.plain
        self._looked = passing.looked
        self._produce = passing.produce

    def receive(self, buffer: memoryview, start: int, end: int) -> int:
        """Walk buffer[start:end]; everything before the returned position passes on as it is.

        Raises:
            RemoteProtocolError: an impossible size.
        """
        at = start + self.left
        if at > end:
            self.left = at - end
            return end
        plain = self._plain
        while at + 12 <= end:
            size, name, correlation_id = _head(buffer, at)
            if not 8 <= size <= self._frame_max:
                break
            expected = plain.get(name)
            if expected is not None:
                self.pending.append((correlation_id, expected))
            else:
                look = self._looked.get(name)
                behind = at + size + 4
                if look is None or (expected := look(buffer, at, min(behind, end), behind)) is None:
                    break
                if expected is not SILENT:
                    self.pending.append((correlation_id, expected))
            at += size + 4
        if at >= end:
            self.left = at - end
            return end
        self.left = 0
        return at

    def peek(self, buffer: memoryview, at: int, end: int) -> Head | None:
        """What stands at a position `receive` stopped at; None when more bytes are needed to say so.

        Raises:
            RemoteProtocolError: an impossible size.
        """
        if end - at < SIZE.size:
            return None
        size: int = SIZE.unpack_from(buffer, at)[0]
        smallest = 0 if self.raw else REQUEST_MIN
        if not smallest <= size <= self._frame_max:
            raise wrong_size(size, self._frame_max, smallest)
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
