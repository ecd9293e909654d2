"""A journal without durability: state lives as long as the process."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from proxy.durable.coming_appends import ComingAppends
from proxy.loop.promise import Promise, settled

K = TypeVar("K", bound=Hashable)


class MemoryJournal(Generic[K]):
    """Keeps the latest value per key, as a compacted topic does."""

    def __init__(self) -> None:
        self._values: dict[K, bytes] = {}
        self.coming = ComingAppends()
        """See interfaces.Journal; nothing waits here."""

    @property
    def values(self) -> Mapping[K, bytes]:
        """What a replay would give."""
        return self._values

    def append(self, records: Sequence[tuple[K, bytes | None]]) -> Promise[None]:
        """See interfaces.Journal; always succeeds at once."""
        for key, value in records:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        return settled(None)
