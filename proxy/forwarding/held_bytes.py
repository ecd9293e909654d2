"""What one connection keeps of requests and answers, as the plane's account of all connections knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.forwarding.connection import Connection


class Holding:
    """The part of `limits.gathered_total_bytes` that is this connection's."""

    __slots__ = ("_connection", "_counted", "is_written_off")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._counted = 0
        self.is_written_off = False
        """The connection is about to end, and others have its room already."""

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
            connection.plane.hold(connection, change)

    def write_off(self, reason: str) -> None:
        """Others need the room: what is kept here is counted no more, and the connection ends with this turn."""
        connection = self._connection
        self.is_written_off = True
        connection.plane.gathered.used -= self._counted
        connection.call_soon(lambda: connection.end("request-refused", reason=reason))
