"""Journal without durability: state is lost with the process."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from kafka_share_proxy.durable.coming_appends import ComingAppends
from kafka_share_proxy.loop.promise import Promise, settled

K = TypeVar("K", bound=Hashable)


class MemoryJournal(Generic[K]):
    """Latest value per key, as in a compacted topic."""

    def __init__(self) -> None:
        self._values: dict[K, bytes] = {}
        self.coming = ComingAppends()
        """See interfaces.Journal. Appends do not wait here."""

    @property
    def values(self) -> Mapping[K, bytes]:
        return self._values

    def append(self, records: Sequence[tuple[K, bytes | None]]) -> Promise[None]:
        """See interfaces.Journal. Always succeeds immediately."""
        for key, value in records:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        return settled(None)
