"""The heaviest hashes of a sample in bounded memory (audit/README.md rule 9).

Counts are added up until there are many more hashes than are kept. Then the count of the heaviest hash that is not kept
is subtracted from all counts, and hashes without a positive count are removed. `error`, the sum of the subtracted
counts, never exceeds the records divided by `kept` + 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

KEPT_MAX = 128
"""Hashes kept in one summary. Every hash with more than 1 % of the records is among them."""
CROWDED = 8
"""Multiple of the kept hashes held before the summary is cut: sorting takes longer than adding."""


class HeavyKeys:
    """Summary of the heaviest hashes."""

    __slots__ = ("_counts", "_kept_max", "error", "records")

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._counts = Counter[int]()
        self.records = 0
        self.error = 0
        """Maximum number of records that a hash may have beyond its count."""

    def add(self, hashes: Sequence[int], weight: int = 1) -> None:
        if weight == 1:
            self._counts.update(hashes)
        else:
            for hashed, count in Counter(hashes).items():
                self._counts[hashed] += count * weight
        self.records += len(hashes) * weight
        if len(self._counts) > CROWDED * self._kept_max:
            self._reduce()

    def heaviest(self, count: int) -> list[tuple[int, int]]:
        """Return at most `count` hashes with their counts, in descending order."""
        if len(self._counts) > self._kept_max:
            self._reduce()
        return self._counts.most_common(count)

    def _reduce(self) -> None:
        excess = sorted(self._counts.values(), reverse=True)[self._kept_max]
        remaining = {hashed: count - excess for hashed, count in self._counts.items() if count > excess}
        self._counts = Counter(remaining)
        self.error += excess
