"""What one connection keeps of requests and answers, as the account of all connections knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from proxy.forwarding.memory_budget import GatherBudget


class Holder(Protocol):
    """The connection that keeps something."""

    @property
    def closed(self) -> bool:
        """Whether it has ended, and keeps nothing."""

    @property
    def holds(self) -> int:
        """Bytes that it keeps."""

    @property
    def unfinished(self) -> int:
        """Bytes of a request that has not come whole, which its client need never finish."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call at the end of this turn."""

    def end(self, event: str, /, **context: Any) -> None:
        """Close the connection that holds them."""


class Account(Protocol):
    """What all connections keep together."""

    gathered: GatherBudget

    def hold(self, held: HeldBytes, change: int) -> None:
        """A connection keeps so many bytes more than before, or fewer.

        Raises:
            RequestRefused: there is no room, and it is this connection that has to end.
        """


class HeldBytes:
    """The part of `limits.gathered_total_bytes` that is this connection's."""

    __slots__ = ("_account", "_connection", "_counted", "is_written_off")

    def __init__(self, connection: Holder, account: Account) -> None:
        self._connection = connection
        self._account = account
        self._counted = 0
        self.is_written_off = False
        """The connection is about to end, and others have its room already."""

    @property
    def unfinished(self) -> int:
        """Bytes that would come free at once if this connection ended, of a request that has not come whole."""
        return 0 if self.is_written_off else self._connection.unfinished

    def update(self) -> None:
        """Tell the account how much it is now.

        Raises:
            RequestRefused: there is no room for it.
        """
        if self.is_written_off:
            return
        connection = self._connection
        held = 0 if connection.closed else connection.holds
        if held != self._counted:
            change, self._counted = held - self._counted, held
            self._account.hold(self, change)

    def write_off(self, reason: str) -> None:
        """Others need the room: what is kept here is counted no more, and the connection ends with this turn."""
        connection = self._connection
        self.is_written_off = True
        self._account.gathered.used -= self._counted
        connection.call_soon(lambda: connection.end("request-refused", reason=reason))
