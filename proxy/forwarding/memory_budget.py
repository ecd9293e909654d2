"""Accounts of memory that clients can make the proxy use: what is gathered, and answers made here, from their first
records on until the kernel has taken them.

Each has one limit for all connections together.
"""

from __future__ import annotations


class GatherBudget:
    """Bytes of frames that are gathered or kept, and of the objects made of requests. Whoever holds them says so."""

    __slots__ = ("limit", "refusals", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.refusals = 0
        """How many connections ended because there was no room."""

    @property
    def is_overdrawn(self) -> bool:
        """Whether more is held than may be."""
        return self.used > self.limit


class AnswerBudget:
    """Bytes of local answers that the kernel has not taken yet.

    Handlers ask for room before they make one; waiting for it is theirs.
    """

    __slots__ = ("_reserved", "limit", "refusals", "unsent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.unsent = 0
        """Bytes of finished answers, until their last byte is in the kernel."""
        self._reserved = 0
        self.refusals = 0
        """How often there was no room."""

    @property
    def used(self) -> int:
        """Bytes reserved or not sent."""
        return self.unsent + self._reserved

    def has_room(self, size: int) -> bool:
        """Whether an answer of `size` bytes may be made now. The first is always let in."""
        return self.used == 0 or self.used + size <= self.limit

    def reserve(self, size: int) -> bool:
        """Set `size` bytes aside for an answer that is being made; False (and counted) when there is no room."""
        if not self.has_room(size):
            self.refusals += 1
            return False
        self._reserved += size
        return True

    def hold(self, size: int) -> None:
        """Count `size` bytes that are there already, room or not, until they are released."""
        self._reserved += size

    def release(self, size: int) -> None:
        """Give back what was reserved: the answer is finished (and counted by the plane from here on) or given up."""
        self._reserved -= size

    def add_unsent(self, size: int) -> None:
        """The plane's side: an answer was handed over to be sent."""
        self.unsent += size

    def sent(self, size: int) -> None:
        """The plane's side: its last byte is in the kernel, or its connection is gone."""
        self.unsent -= size
