"""When each of many named things wants to be looked at next: a heap, so that those that sleep cost nothing."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf

SLACK = 64
"""Outdated entries that may stay in the heap beyond as many as there are names."""


class Deadlines:
    """One deadline for each name, the earliest first. All times are monotonic seconds."""

    __slots__ = ("_heap", "_of")

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._of: dict[str, float] = {}
        """The one entry of each name in the heap that counts."""

    def __len__(self) -> int:
        return len(self._of)

    def not_later_than(self, name: str, deadline: float) -> None:
        """Look at it then, or when it was wanted before, whatever is earlier."""
        if deadline >= self._of.get(name, inf):
            return
        self._of[name] = deadline
        heappush(self._heap, (deadline, name))
        if len(self._heap) > 2 * len(self._of) + SLACK:
            self._heap = [(until, each) for each, until in self._of.items()]
            heapify(self._heap)

    def forget(self, name: str) -> None:
        """Do not look at it any more; harmless when nobody was going to."""
        self._of.pop(name, None)

    def next(self) -> float:
        """The earliest deadline; inf when there is none."""
        heap = self._heap
        while heap and self._of.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def take(self, now: float) -> list[str]:
        """The names whose deadline is `now` or earlier, by deadline; they have none from here on."""
        due = []
        while self.next() <= now:
            name = heappop(self._heap)[1]
            del self._of[name]
            due.append(name)
        return due
