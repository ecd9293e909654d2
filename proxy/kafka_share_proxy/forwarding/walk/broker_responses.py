"""Frame boundaries of the broker's responses, matched to the requests they belong to (forwarding/README.md rule 22).

`receive` stops before a response that has to be gathered, or whose head is incomplete, and `peek` then describes it.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.forwarding.walk.walk import Expected
from kafka_share_proxy.forwarding.walk.walking import ResponseWalk
from kafka_share_proxy.wire.codec.frame_sizes import RESPONSE_HEAD, RESPONSE_MIN, SIZE, wrong_size
from kafka_share_proxy.wire.errors import RemoteProtocolError


class Token:
    """Expected entry for a raw SASL token, which has no correlation id (handshake v0)."""

    __slots__ = ()
    rewrite = False  # not None: such a frame is handled individually


TOKEN = Token()


class Due(NamedTuple):
    """Response that `receive` stopped at."""

    size: int
    expected: Expected


class BrokerResponses(ResponseWalk):
    """Frame boundaries of one broker connection."""

    __slots__ = ()

    def peek(self, buffer: memoryview, at: int, end: int) -> Due | None:
        """Return the response at which `receive` stopped. None if more bytes are needed.

        Raises RemoteProtocolError for an impossible size, and a response without a request or out of order.
        """
        if not self.pending:
            raise RemoteProtocolError("the broker sent a response that belongs to no request")
        next_id, expected = self.pending[0]
        if end - at < SIZE.size:
            return None
        size: int = SIZE.unpack_from(buffer, at)[0]
        smallest = 0 if expected is TOKEN else RESPONSE_MIN
        if not smallest <= size <= self.frame_max:
            raise wrong_size(size, self.frame_max, smallest)
        if expected is TOKEN:
            return Due(size, expected)
        if end - at < RESPONSE_HEAD.size:
            return None
        correlation_id = RESPONSE_HEAD.unpack_from(buffer, at)[1]
        if correlation_id != next_id:
            raise RemoteProtocolError(f"the broker responded to request {correlation_id}, but {next_id} was next")
        return Due(size, expected)

    def admit(self, size: int, at: int, end: int) -> int:
        """Forward the response at `at`. Return the end of its bytes received so far."""
        self.pending.popleft()
        behind = at + size + SIZE.size
        if behind > end:
            self.missing = behind - end
            return end
        return behind
