"""Values counted by ranges."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds, inclusive."""


class Histogram:
    """Values counted by ranges, as in Prometheus."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        index = 0 if value <= self._bounds[0] else bisect_left(self._bounds, value)  # most are in the first range
        self._counts[index] += times
        self.total += value * times

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield (upper bound, number of values up to it), in ascending order, to "+Inf"."""
        count = 0
        for bound, more in zip([*self._bounds, "+Inf"], self._counts, strict=True):
            count += more
            yield str(bound), count


def seconds_histogram() -> Histogram:
    """Return a histogram for durations of requests, with the bounds SECONDS."""
    return Histogram(SECONDS)
