"""Deadlines of many named objects in a heap, so that waiting objects cost no time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

SLACK = 64
"""Maximum number of outdated heap entries, in addition to one per name."""


class Deadlines:
    """One deadline for each name, the earliest first. All times are monotonic seconds."""

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._deadlines: dict[str, float] = {}
        """Current deadline by name. Heap entries with any other time are outdated."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def not_later_than(self, name: str, deadline: float) -> None:
        """Set the deadline of a name, unless it has an earlier one."""
        if deadline >= self._deadlines.get(name, inf):
            return
        self._deadlines[name] = deadline
        heappush(self._heap, (deadline, name))
        if len(self._heap) > 2 * len(self._deadlines) + SLACK:
            self._heap = [(until, each) for each, until in self._deadlines.items()]
            heapify(self._heap)

    def forget(self, name: str) -> None:
        self._deadlines.pop(name, None)

    def next(self) -> float:
        """Return the earliest deadline, or inf."""
        heap = self._heap
        while heap and self._deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def take(self, now: float) -> list[str]:
        """Remove and return the names whose deadline is `now` or earlier, by deadline."""
        due = []
        while self.next() <= now:
            name = heappop(self._heap)[1]
            del self._deadlines[name]
            due.append(name)
        return due
