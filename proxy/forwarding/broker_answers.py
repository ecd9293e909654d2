"""The broker's half of a connection: where its answers begin, and whose they are.

A broker answers strictly in the order of the requests, so the front of the queue says what comes next; the correlation
id must agree. Answers that pass are counted off as they come; before one that is to be gathered, or whose head is not
whole, `receive` stops and `peek` says what it is.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.forwarding.walk import Expected
from proxy.forwarding.walking import AnswerWalk
from proxy.wire.errors import RemoteProtocolError
from proxy.wire.frame_sizes import ANSWER_HEAD, ANSWER_MIN, SIZE, wrong_size


class Token:
    """Expected: the next frame is a raw SASL token, with no correlation id (handshake v0)."""

    __slots__ = ()
    rewrite = False  # not None: it does not simply pass


TOKEN = Token()


class Due(NamedTuple):
    """The answer that `receive` stopped at."""

    size: int
    """Without the 4 size bytes."""
    expected: Expected


class BrokerAnswers(AnswerWalk):
    """Frame boundaries of one broker connection."""

    __slots__ = ()

    def peek(self, buffer: memoryview, at: int, end: int) -> Due | None:
        """What stands at a position `receive` stopped at; None when more bytes are needed. Its entry stays queued.

        Raises:
            RemoteProtocolError: an impossible size, an answer nobody asked for, or one out of order.
        """
        if not self.pending:
            raise RemoteProtocolError("the broker sent an answer nobody asked for")
        asked, expected = self.pending[0]
        if end - at < SIZE.size:
            return None
        size: int = SIZE.unpack_from(buffer, at)[0]
        smallest = 0 if expected is TOKEN else ANSWER_MIN
        if not smallest <= size <= self.frame_max:
            raise wrong_size(size, self.frame_max, smallest)
        if expected is TOKEN:
            return Due(size, expected)
        if end - at < ANSWER_HEAD.size:
            return None
        correlation_id = ANSWER_HEAD.unpack_from(buffer, at)[1]
        if correlation_id != asked:
            raise RemoteProtocolError(f"the broker answered request {correlation_id} where {asked} was next")
        return Due(size, expected)

    def admit(self, size: int, at: int, end: int) -> int:
        """Let the answer at `at` pass and take it off the queue; return up to where its bytes have come."""
        self.pending.popleft()
        behind = at + size + SIZE.size
        if behind > end:
            self.left = behind - end
            return end
        return behind
