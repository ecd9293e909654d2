"""What one proxy knows of the load of partitions in one interval: totals, and a sample of keys by bucket and by hash.

Totals and samples stand apart, because in a fleet they come about at two proxies (audit/README.md rule 6): events are
added up, and only then totals are spread over buckets as the samples lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.audit.events import Place
from proxy.audit.heavy_keys import HeavyKeys
from proxy.wire.key_samples import ROW, KeySample, buckets, tally

PLACES_MAX = 10_000
"""Partitions with load in one interval; those beyond are not told."""
SAMPLED_PLACES_MAX = 500
"""Of these, partitions with samples: each takes some 70 KB."""
HEAVY_RECORDS = 256
"""Of what is seen at a time so many at most are counted by hash: that takes ten times as long as by bucket."""
HOT_KEYS_TOLD = 32
"""Hashes of one `hot_keys` event."""


class Buckets:
    """Sampled records and their bytes by bucket; becomes text when the event is written."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.records, self.bytes = buckets()

    def told(self) -> dict[str, list[int]]:
        """Those with records."""
        sizes = self.bytes
        return {str(at): [count, sizes[at]] for at, count in enumerate(self.records) if count}


class Sampled:
    """The sample of one partition."""

    __slots__ = ("buckets", "heavy", "heavy_null_keys", "null_keys", "records")

    def __init__(self) -> None:
        self.buckets = Buckets()
        self.heavy = HeavyKeys()
        self.heavy_null_keys = 0
        """Beside the records that are counted by hash."""
        self.records = self.null_keys = 0

    def add(self, samples: Sequence[KeySample]) -> None:
        """Take in what was seen of some batches."""
        keyed, null = (b"".join(rows) for rows in zip(*samples, strict=True))
        for rows in (keyed, null):
            tally(rows, self.buckets.records, self.buckets.bytes)
        count = (len(keyed) + len(null)) // ROW.size
        self.records += count
        self.null_keys += len(null) // ROW.size
        parts = max(-(-count // HEAVY_RECORDS), 1)
        kept = -(-len(keyed) // (ROW.size * parts))  # neighbours: every n-th would go wrong where keys come in turn
        self.heavy.add(memoryview(keyed).cast("I")[: 2 * kept : 2])  # of each row the hash
        self.heavy_null_keys += -(-len(null) // (ROW.size * parts))


class Load:
    """What happened to one partition in one interval."""

    __slots__ = ("bytes", "hold_ms", "rows", "sampled")

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self.hold_ms = 0.0
        self.sampled: Sampled | None = None


class Loads:
    """Of all partitions, since they were told last."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._places: dict[Place, Load] = {}
        self._sampled = 0

    def of(self, place: Place) -> Load:
        """The load of one partition, to be added to."""
        load = self._places.get(place)
        if load is None:
            load = Load()
            if len(self._places) < PLACES_MAX:
                self._places[place] = load
        return load

    def add_sample(self, place: Place, samples: Sequence[KeySample]) -> None:
        """Keys of what was read of a partition."""
        load = self.of(place)
        if load.sampled is None:
            if self._sampled >= SAMPLED_PLACES_MAX:
                return
            self._sampled += 1
            load.sampled = Sampled()
        if samples:
            load.sampled.add(samples)

    def take(self, now: float) -> Iterator[tuple[str, Place, tuple[Any, ...]]]:
        """Kind, place and values of the events about the time since the last call; then all begins anew."""
        interval_ms = round((now - self._since) * 1000)
        places, self._places, self._sampled, self._since = self._places, {}, 0, now
        for place, load in sorted(places.items()):
            yield from _events(place, load, interval_ms)


def _events(place: Place, load: Load, interval_ms: int) -> Iterator[tuple[str, Place, tuple[Any, ...]]]:
    totals = (interval_ms, load.rows, load.bytes, round(load.hold_ms))
    sampled = load.sampled
    if sampled is None or not sampled.records:
        yield "load", place, (*totals, 0, 0, 0, {})
        return
    size, heavy, null_keys = sum(sampled.buckets.bytes), sampled.heavy, sampled.heavy_null_keys
    yield "load", place, (*totals, sampled.records, size, sampled.null_keys, sampled.buckets)
    keys = heavy.heaviest(HOT_KEYS_TOLD)
    yield "hot_keys", place, (interval_ms, heavy.records + null_keys, null_keys, heavy.error, keys)
