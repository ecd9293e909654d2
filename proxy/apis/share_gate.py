"""Whether share groups may be served now: state is loaded, and it is this proxy that owns it.

Theory of operation. Every handler of share requests runs between two looks at the gate. While it is closed a request
waits for a bounded time (its connection is muted: a client that asks again and again costs more), then it is refused
with what makes every stock client try again: heartbeats get COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE,
ShareFetch and ShareAcknowledge get SHARE_SESSION_NOT_FOUND for the whole request, after which clients open another
session (the Java client throws on 14, 15 and 16 in a fetched partition, share-groups.md 8.2; and what was acquired is
lost to the session anyway). The second look, when the handler is done, is for what happened meanwhile: a machine that
was suspended beyond its lease must not tell anybody what it believed before.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.apis.promise import Promise
from proxy.errors import ErrorCode

HOLD_MAX_S = 2.0
"""A request waits so long for the gate; clients wait at least 5 s longer than the wait they ask for."""


class ShareGate:
    """Open unless somebody closes it."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        """Why it is closed, for coordinator requests; NONE = open."""
        self.reason = ""
        """The same, for people."""
        self.refused: dict[int, str] = {}
        """State partitions that cannot be read here, and why: their groups are not served."""
        self.times_closed = 0
        self.lease: Callable[[], bool] = lambda: True
        """Whether nobody else can have become the owner, by a clock that counts sleep as well."""
        self._waiters: list[Promise[None]] = []

    @property
    def is_open(self) -> bool:
        """Whether share requests may be answered at this moment."""
        return self.code == ErrorCode.NONE and self.lease()

    @property
    def refusal(self) -> ErrorCode:
        """What a coordinator answers while it is closed."""
        return self.code or ErrorCode.COORDINATOR_NOT_AVAILABLE

    def open(self) -> None:
        """State is loaded and ours: let requests in."""
        self.code, self.reason = ErrorCode.NONE, ""
        self.look()

    def close(self, code: ErrorCode, reason: str) -> None:
        """Let nothing in, and nothing out that is under way."""
        if self.code == ErrorCode.NONE:
            self.times_closed += 1
        self.code, self.reason = code, reason

    def look(self) -> None:
        """Whoever waits goes on if it is open."""
        if self.is_open:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                waiter.set(None)

    def wait(self) -> Promise[None]:
        """Settled when it opens; hand it to `forget` when that is not waited for any more."""
        promise: Promise[None] = Promise()
        self._waiters.append(promise)
        return promise

    def forget(self, promise: Promise[None]) -> None:
        """Nobody waits for it any more."""
        if promise in self._waiters:
            self._waiters.remove(promise)
