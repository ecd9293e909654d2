"""How much a Fetch asks for, so that little comes that lies behind what was planned (pipeline/README.md rule 10)."""

from __future__ import annotations

from collections.abc import Hashable

UNKNOWN_BYTES, OFFSET_BYTES = 64 << 10, 1 << 10
"""As long as nothing has come: so many bytes for each offset, and at least so many together."""
BATCH_BYTES, MARGIN = 4 << 10, 1.02
"""Afterwards a batch more, and a little, than what came makes expect: a second Fetch costs more than they do."""
REMEMBERED_MAX = 1_000
"""Splits whose density is kept."""


class FetchSizes:
    """Bytes that came for each offset, by split. That of the next micro-batch is about as dense as the last one's."""

    def __init__(self) -> None:
        self._densities: dict[Hashable, float] = {}

    def came(self, split: Hashable, offsets: int, size: int) -> None:
        """An answer of `size` bytes was about so many offsets."""
        if offsets <= 0:
            return
        if len(self._densities) >= REMEMBERED_MAX and split not in self._densities:
            self._densities.clear()
        self._densities[split] = size / offsets

    def wanted(self, split: Hashable, offsets: int, most: int) -> int:
        """Bytes to ask for: about so many offsets, and at most `most` bytes."""
        density = self._densities.get(split)
        if density is None:
            return min(most, max(UNKNOWN_BYTES, offsets * OFFSET_BYTES))
        return min(most, BATCH_BYTES + int(offsets * density * MARGIN))
