"""A journal without durability: state lives as long as the process. Stands where the topic journal will."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy.durable.interfaces import StateKey
from proxy.loop.promise import Promise, settled


class MemoryJournal:
    """Keeps the latest value per key, as a compacted topic does."""

    def __init__(self) -> None:
        self._values: dict[StateKey, bytes] = {}

    @property
    def values(self) -> Mapping[StateKey, bytes]:
        """What a replay would give."""
        return self._values

    def append(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        """See interfaces.Journal; always succeeds at once."""
        for key, value in records:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        return settled(None)
