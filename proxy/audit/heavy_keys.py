"""The heaviest hashes of a sample in bounded memory: the summary of Misra and Gries, for many records at a time.

Theory of operation. Counts are added up until many more hashes are known than are kept. Then the count of the first
one too many is taken from all, and what is left with nothing goes; `error` remembers how much was taken. So a hash has
at most `error` more records than its count says, one that is not kept has at most `error`, and `error` is never more
than the records divided by `kept` + 1 (Misra and Gries 1982; that such summaries may be merged so: Agarwal and others,
Mergeable Summaries, 2012).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

KEPT_MAX = 128
"""Hashes of one summary; whatever has more than 1 % of the records is among them."""
CROWDED = 8
"""Times as many may be known before the summary is cut: sorting them takes longer than adding hashes."""


class HeavyKeys:
    """One summary."""

    __slots__ = ("_counts", "_kept_max", "error", "records")

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._counts = Counter[int]()
        self.records = 0
        """Added so far."""
        self.error = 0
        """Records that a hash may have beyond its count."""

    def add(self, hashes: Sequence[int]) -> None:
        """One for each record."""
        self._counts.update(hashes)
        self.records += len(hashes)
        if len(self._counts) > CROWDED * self._kept_max:
            self._reduce()

    def heaviest(self, most: int) -> list[tuple[int, int]]:
        """Hashes with their counts, the heaviest first; no more than are kept."""
        if len(self._counts) > self._kept_max:
            self._reduce()
        return self._counts.most_common(most)

    def _reduce(self) -> None:
        taken = sorted(self._counts.values(), reverse=True)[self._kept_max]
        left = {hashed: count - taken for hashed, count in self._counts.items() if count > taken}
        self._counts = Counter(left)
        self.error += taken
