"""Sizes of Fetch requests, chosen so that few bytes arrive beyond the planned offsets (pipeline/README.md rule 10)."""

from __future__ import annotations

from collections.abc import Hashable

UNKNOWN_BYTES, OFFSET_BYTES = 64 << 10, 1 << 10
"""Bytes to request before the density is known: the minimum, and per offset."""
BATCH_BYTES, MARGIN = 4 << 10, 1.02
"""Added to the expected bytes: a second Fetch costs more."""
REMEMBERED_MAX = 1_000
"""Maximum number of splits whose density is remembered. Beyond it, all are forgotten."""


class FetchSizes:
    """Bytes per offset, by split. The next micro-batch is about as dense as the last one."""

    def __init__(self) -> None:
        self._densities: dict[Hashable, float] = {}

    def learn(self, split: Hashable, offsets: int, size: int) -> None:
        """Note that a response of `size` bytes advanced a split by that many offsets."""
        if offsets <= 0:
            return
        if len(self._densities) >= REMEMBERED_MAX and split not in self._densities:
            self._densities.clear()
        self._densities[split] = size / offsets

    def request_bytes(self, split: Hashable, offsets: int, bytes_max: int) -> int:
        """Return the bytes to request for the remaining offsets of a split."""
        density = self._densities.get(split)
        if density is None:
            return min(bytes_max, max(UNKNOWN_BYTES, offsets * OFFSET_BYTES))
        return min(bytes_max, BATCH_BYTES + int(offsets * density * MARGIN))
