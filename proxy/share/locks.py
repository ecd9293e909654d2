"""Deadlines of acquisition locks, shared by all share partitions of a coordinator (performance.md 6.1)."""

from __future__ import annotations

from collections.abc import Hashable


class LockIndex:
    """When does which lock end: one insertion-ordered dict per lock duration."""

    def next_deadline(self) -> float:
        """A time not after the first deadline (it may be early when that lock was given back); inf when empty."""

    def expired(self, now: float) -> dict[Hashable, list[object]]:
        """Take out every lock with deadline <= now, by SharePartition: pass each list to that partition's expire()."""
