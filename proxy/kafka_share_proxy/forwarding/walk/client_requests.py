"""Frame boundaries of the client's requests, and the requests at which the walk over the bytes stops.

`receive` (`walk.RequestWalk`) stops before a frame that needs treatment (served here, inspected, refused, SASL, an API
that is not in the table) and before an incomplete head. The caller then calls `peek` and either forwards the frame
(`admit`) or gathers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka_share_proxy.forwarding.dispatch.request_inspection import HEAD_MAX, SILENT
from kafka_share_proxy.forwarding.walk.walk import Expected, Inspect
from kafka_share_proxy.forwarding.walk.walking import Pending, RequestWalk, Table
from kafka_share_proxy.wire.codec.frame_sizes import REQUEST_HEAD, REQUEST_MIN, SIZE, wrong_size
from kafka_share_proxy.wire.errors import RemoteProtocolError


class Passing:
    """Requests that can be forwarded, by their first four bytes (API key and version). Immutable."""

    __slots__ = ("produce", "table")

    def __init__(
        self, plain: Mapping[bytes, Expected], inspected: Mapping[bytes, Inspect], produce: frozenset[bytes]
    ) -> None:
        """`inspected` requests are inspected first; those in `produce` are decided once their acks have arrived."""
        self.table = Table(plain, inspected, SILENT)
        self.produce = produce


NOTHING_PASSES = Passing({}, {}, frozenset())


class RequestHead(NamedTuple):
    """Beginning of a request that `receive` stopped at."""

    size: int
    name: bytes
    """API key and version. Empty for a raw SASL token that is too short to contain them."""
    correlation_id: int


class ClientRequests(RequestWalk):
    """Frame boundaries of one client's requests."""

    __slots__ = ("_produce", "raw")

    def __init__(self, pending: Pending, passing: Passing, frame_max: int) -> None:
        super().__init__(pending, passing.table, frame_max)
        self._produce = passing.produce
        self.raw = False

    def go_by(self, passing: Passing) -> None:
        """Use `passing` from the next frame on."""
        self.use(passing.table)
        self._produce = passing.produce

    def peek(self, buffer: memoryview, at: int, end: int) -> RequestHead | None:
        """Return the head of the request at `at`, or None if more bytes are needed.

        Raises RemoteProtocolError for an impossible size.
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
        """Forward the frame at `at`. Return the end of its bytes received so far."""
        behind = at + size + SIZE.size
        if behind > end:
            self.missing = behind - end
            return end
        return behind
