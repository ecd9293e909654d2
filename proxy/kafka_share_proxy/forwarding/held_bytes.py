"""Bytes that one connection keeps of requests and responses, reported to the account of all connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kafka_share_proxy.forwarding.memory_budget import GatherBudget


class Holder(Protocol):
    """Connection that keeps bytes."""

    @property
    def closed(self) -> bool: ...

    @property
    def holds(self) -> int: ...

    @property
    def unfinished(self) -> int:
        """Received bytes of an incomplete request, which its client may never finish."""

    def call_soon(self, callback: Callable[[], object]) -> None: ...

    def end(self, event: str, /, **context: Any) -> None: ...


class Account(Protocol):
    """Account of the bytes that all connections keep together."""

    gathered: GatherBudget

    def hold(self, held: HeldBytes, change: int) -> None:
        """Change the bytes of a connection. Raises RequestRefused if there is no memory left, so that it has to end."""


class HeldBytes:
    """Share of `limits.gathered_total_bytes` that one connection uses."""

    __slots__ = ("_account", "_connection", "_counted", "is_written_off")

    def __init__(self, connection: Holder, account: Account) -> None:
        self._connection = connection
        self._account = account
        self._counted = 0
        self.is_written_off = False

    @property
    def unfinished(self) -> int:
        """Bytes of an incomplete request that would become free if this connection ended now."""
        return 0 if self.is_written_off else self._connection.unfinished

    def update(self) -> None:
        """Report the current number of bytes. Raises RequestRefused if there is no memory left for it."""
        if self.is_written_off:
            return
        connection = self._connection
        size = 0 if connection.closed else connection.holds
        if size != self._counted:
            change, self._counted = size - self._counted, size
            self._account.hold(self, change)

    def write_off(self, reason: str) -> None:
        """Release the share for other connections, and end this one at the end of the loop iteration."""
        connection = self._connection
        self.is_written_off = True
        self._account.gathered.used -= self._counted
        connection.call_soon(lambda: connection.end("request-refused", reason=reason))
