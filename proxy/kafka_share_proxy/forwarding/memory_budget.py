"""Budgets for memory that clients can make the proxy use, for all connections together."""

from __future__ import annotations


class GatherBudget:
    """Bytes of frames that are gathered or kept, and of decoded requests."""

    __slots__ = ("limit", "refusals", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.refusals = 0

    @property
    def is_overdrawn(self) -> bool:
        return self.used > self.limit


class ResponseBudget:
    """Bytes of local responses, from their first records until the kernel has accepted them."""

    __slots__ = ("_reserved", "limit", "refusals", "unsent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.unsent = 0
        self._reserved = 0
        self.refusals = 0

    @property
    def used(self) -> int:
        return self.unsent + self._reserved

    def has_room(self, size: int) -> bool:
        """True if the response may be built now. The first one is always admitted."""
        return self.used == 0 or self.used + size <= self.limit

    def reserve(self, size: int) -> bool:
        """Return False, and count the refusal, if the budget is full."""
        if not self.has_room(size):
            self.refusals += 1
            return False
        self._reserved += size
        return True

    def hold(self, size: int) -> None:
        """Count bytes that already exist, even beyond the limit."""
        self._reserved += size

    def release(self, size: int) -> None:
        """Release a reservation: the response is finished (the plane counts it from now on) or abandoned."""
        self._reserved -= size

    def add_unsent(self, size: int) -> None:
        self.unsent += size

    def sent(self, size: int) -> None:
        self.unsent -= size
