"""Bytes that one connection keeps of requests and responses, reported to the account of all connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection
    from kafka_share_proxy.forwarding.data_plane import Plane


class HeldBytes:
    """Share of `limits.gathered_total_bytes` that one connection uses."""

    __slots__ = ("_connection", "_counted", "_plane", "is_written_off")

    def __init__(self, connection: ForwardedConnection, plane: Plane) -> None:
        self._connection = connection
        self._plane = plane
        self._counted = 0
        self.is_written_off = False

    @property
    def unfinished(self) -> int:
        return 0 if self.is_written_off else self._connection.unfinished

    def update(self) -> None:
        """Report the number of bytes. Raises RequestRefused if there is no memory left."""
        if self.is_written_off:
            return
        connection = self._connection
        size = 0 if connection.closed else connection.holds
        if size != self._counted:
            change, self._counted = size - self._counted, size
            self._plane.hold(self, change)

    def write_off(self, reason: str) -> None:
        """Release the share, and end this connection at the end of the loop iteration."""
        connection = self._connection
        self.is_written_off = True
        self._plane.gathered.used -= self._counted
        connection.call_soon(lambda: connection.end("request-refused", reason=reason))
