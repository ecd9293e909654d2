"""Budgets for memory that clients can make the proxy use: gathered frames, and local responses.

A local response counts from its first records until the kernel has accepted it. Each budget is one limit for all
connections together.
"""

from __future__ import annotations


class GatherBudget:
    """Bytes of frames that are gathered or kept, and of decoded requests. Their holders report them."""

    __slots__ = ("limit", "refusals", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.refusals = 0
        """Number of connections that ended because the budget was exhausted."""

    @property
    def is_overdrawn(self) -> bool:
        """True if more is held than the limit."""
        return self.used > self.limit


class ResponseBudget:
    """Bytes of local responses that the kernel has not accepted yet.

    Handlers reserve bytes before they build a response. They also do the waiting for free bytes.
    """

    __slots__ = ("_reserved", "limit", "refusals", "unsent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.unsent = 0
        """Bytes of finished responses, until their last byte is in the kernel."""
        self._reserved = 0
        self.refusals = 0
        """Number of failed reservations."""

    @property
    def used(self) -> int:
        """Bytes reserved or not sent."""
        return self.unsent + self._reserved

    def has_room(self, size: int) -> bool:
        """Return True if a response of `size` bytes may be built now. The first one is always admitted."""
        return self.used == 0 or self.used + size <= self.limit

    def reserve(self, size: int) -> bool:
        """Reserve `size` bytes for a response. Returns False, and counts the refusal, if the budget is full."""
        if not self.has_room(size):
            self.refusals += 1
            return False
        self._reserved += size
        return True

    def hold(self, size: int) -> None:
        """Count `size` bytes that already exist, even beyond the limit, until they are released."""
        self._reserved += size

    def release(self, size: int) -> None:
        """Release a reservation because the response is finished (the plane counts it from now on) or abandoned."""
        self._reserved -= size

    def add_unsent(self, size: int) -> None:
        """Count a response that was passed to the plane to be sent. Called by the plane."""
        self.unsent += size

    def sent(self, size: int) -> None:
        """Release a response whose last byte is in the kernel, or whose connection ended. Called by the plane."""
        self.unsent -= size
