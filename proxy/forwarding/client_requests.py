"""The client's half of a connection: what the requests are at which the walk over its bytes stopped.

`receive` (`walk.RequestWalk`) says up to where the bytes may pass on as they are. It stops before a frame that does not
simply pass (served here, inspected, refused, SASL, an API the table does not list) and before a head that has not come
whole. The caller then asks `peek` what stands there and either lets it pass (`admit`) or gathers it, and goes on behind
it. Correlation ids are never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.forwarding.request_inspection import HEAD_MAX, SILENT
from proxy.forwarding.walk import Expected, Look
from proxy.forwarding.walking import Pending, RequestWalk, Table
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.frame_sizes import REQUEST_HEAD, REQUEST_MIN, SIZE, wrong_size


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


class RequestHead(NamedTuple):
    """The beginning of a request that `receive` stopped at."""

    size: int
    """Without the 4 size bytes."""
    name: bytes
    """API key and version; empty for a raw SASL token too short to have one."""
    correlation_id: int


class ClientRequests(RequestWalk):
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

    def peek(self, buffer: memoryview, at: int, end: int) -> RequestHead | None:
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
            return RequestHead(size, b"", 0)
        if end - at < REQUEST_HEAD.size:
            return None
        head = RequestHead(*REQUEST_HEAD.unpack_from(buffer, at))
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
