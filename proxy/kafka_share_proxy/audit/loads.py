"""Load of partitions in one interval, as one proxy sees it: totals, and a sample of keys by bucket and hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.heavy_keys import HeavyKeys
from kafka_share_proxy.audit.sampling import evenly_spread
from kafka_share_proxy.wire.key_text import SHOWN_BYTES, key_text
from kafka_share_proxy.wire.records.key_samples import ROW, KeySample, SampleShape, buckets, effective_size, tally

PLACES_MAX = 10_000
"""Maximum number of partitions with load in one interval. Others are not reported."""
SAMPLED_PLACES_MAX = 500
"""Maximum number of partitions with samples: each needs about 70 KB."""
HEAVY_RECORDS = 256
"""Maximum number of records of one look that are counted by hash, which takes ten times as long as by bucket."""
WEIGHT_MAX = 1 << 20
"""Maximum number of records that one key represents, even if batch headers claim more."""
NAMES_MAX = 512
"""Maximum number of keys per partition whose bytes are kept, to be shown if they are hot."""
HOT_KEYS_REPORTED = 32
"""Maximum number of hashes in one `hot_keys` event."""


class Buckets:
    """Sampled records and their bytes by bucket."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        self.records, self.bytes = buckets()

    def json_value(self) -> dict[str, list[int]]:
        """Return [records, bytes] by bucket, without empty ones."""
        sizes = self.bytes
        return {str(at): [count, sizes[at]] for at, count in enumerate(self.records) if count}


class Sampled:
    """Sample of one partition. Each key represents `weight` records."""

    __slots__ = (
        *("_largest", "_pairs", "_pairs_max", "_squares", "buckets", "counted", "heavy", "heavy_null_keys"),
        *("keys", "looks", "names", "null_keys", "records"),
    )

    def __init__(self) -> None:
        self.buckets = Buckets()
        self.heavy = HeavyKeys()
        self.heavy_null_keys = 0
        """Sampled records with a null key, in addition to those counted by hash."""
        self.records = self.null_keys = 0
        """Records that the sampled keys represent."""
        self.keys = self.looks = self.counted = 0
        """Number of sampled keys, of looks, and of keys that are counted by hash."""
        self.names: dict[int, bytes] = {}
        """Key by hash, of some sampled records."""
        self._pairs = self._pairs_max = 0
        """Pairs of keys of one look: those in one bucket, and all."""
        self._squares = self._largest = 0
        """Sums over looks of weight^2 x keys, and of weight^2 x keys^2."""

    def add(self, samples: Sequence[KeySample], weight: int) -> None:
        """Add the keys of one look. Each key represents `weight` records."""
        keyed, null = (b"".join(rows) for rows in zip(*(sample[:2] for sample in samples), strict=True))
        count = (len(keyed) + len(null)) // ROW.size
        self._pairs += tally(keyed + null, self.buckets.records, self.buckets.bytes, weight)
        self._pairs_max += count * (count - 1) // 2
        self._squares += weight * weight * count
        self._largest += weight * weight * count * count
        self.keys += count
        self.looks += 1
        self.records += count * weight
        self.null_keys += len(null) // ROW.size * weight
        self._count_hashes(keyed, len(null) // ROW.size, weight)
        for sample in samples:
            if sample.key is not None and len(self.names) < NAMES_MAX:
                self.names[ROW.unpack_from(sample.keyed)[0]] = sample.key

    def _count_hashes(self, keyed: bytes, null_keys: int, weight: int) -> None:
        """Count a part of the keys by hash: HEAVY_RECORDS of them at most."""
        keys = len(keyed) // ROW.size
        parts = max(_divided(keys + null_keys, HEAVY_RECORDS), 1)
        hashes = memoryview(keyed).cast("I")[::2]
        # The first keys, which are neighbours: every n-th key would be wrong for periodic keys.
        self.heavy.add(hashes[: _divided(keys, parts)], weight * parts)
        self.counted += _divided(keys + null_keys, parts)
        self.heavy_null_keys += _divided(null_keys, parts) * weight * parts

    def effective_size(self) -> int:
        """Return the size of a simple random sample of equal precision (audit/README.md)."""
        return effective_size(
            SampleShape(self.records, self._squares, self._largest, self._pairs, self._pairs_max), self.buckets.records
        )


def _divided(dividend: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-dividend // divisor)


class EffectiveSize:
    """Effective size of a sample, computed when the event is written (see events.LazyJson)."""

    __slots__ = ("_sampled",)

    def __init__(self, sampled: Sampled) -> None:
        self._sampled = sampled

    def json_value(self) -> int:
        return self._sampled.effective_size()


class Load:
    """Load of one partition in one interval."""

    __slots__ = ("bytes", "hold_ms", "rows", "sampled")

    def __init__(self) -> None:
        self.rows = 0
        """Records that were returned to readers."""
        self.bytes = 0
        self.hold_ms = 0.0
        """Milliseconds for which settled deliveries were held, over all offsets."""
        self.sampled: Sampled | None = None


class Loads:
    """Load of all partitions since the last events."""

    def __init__(self, now: float, key_bytes: int = SHOWN_BYTES, draw: Callable[[], float] | None = None) -> None:
        """
        Args:
            now: seconds of the loop's clock.
            key_bytes: maximum bytes of a key in `hot_keys`; 0 for no keys.
            draw: uniform random numbers of [0, 1); None for `evenly_spread`.
        """
        self._since = now
        self._key_bytes = key_bytes
        self._draw = draw or evenly_spread()
        self._loads: dict[Place, Load] = {}
        self._sampled = 0

    def of(self, place: Place) -> Load:
        """Return the load of a partition. Beyond PLACES_MAX it is a new one, which is not reported."""
        load = self._loads.get(place)
        if load is None:
            load = Load()
            if len(self._loads) < PLACES_MAX:
                self._loads[place] = load
        return load

    def add_sample(self, place: Place, samples: Sequence[KeySample], rows: float) -> None:
        """Add the keys of one look. `rows`: records that it represents."""
        load = self.of(place)
        if load.sampled is None:
            if self._sampled >= SAMPLED_PLACES_MAX:
                return
            self._sampled += 1
            load.sampled = Sampled()
        keys = sum(sample.rows for sample in samples)
        if keys:  # rounded at random to integers that are right on average
            load.sampled.add(samples, min(max(int(rows / keys + self._draw()), 1), WEIGHT_MAX))

    def take(self, now: float) -> Iterator[tuple[str, Place, tuple[Any, ...]]]:
        """Yield kind, place and values of the events since the last call, and reset."""
        interval_ms = round((now - self._since) * 1000)
        loads, self._loads, self._sampled, self._since = self._loads, {}, 0, now
        for place, load in sorted(loads.items()):
            yield from _events(place, load, interval_ms, self._key_bytes)


def _events(place: Place, load: Load, interval_ms: int, key_bytes: int) -> Iterator[tuple[str, Place, tuple[Any, ...]]]:
    totals = (interval_ms, load.rows, load.bytes, round(load.hold_ms))
    sampled = load.sampled
    if sampled is None or not sampled.records:
        yield "load", place, (*totals, 0, 0, 0, 0, 0, 0, {})
        return
    size, heavy, null_keys = sum(sampled.buckets.bytes), sampled.heavy, sampled.heavy_null_keys
    of_sample = (sampled.records, size, sampled.null_keys, sampled.looks, sampled.keys, EffectiveSize(sampled))
    yield "load", place, (*totals, *of_sample, sampled.buckets)
    keys = heavy.heaviest(HOT_KEYS_REPORTED)
    names = {
        str(hashed): key_text(sampled.names[hashed], key_bytes)
        for hashed, _ in keys
        if key_bytes and hashed in sampled.names
    }
    counted = (heavy.records + null_keys, sampled.counted, null_keys, heavy.error)
    yield "hot_keys", place, (interval_ms, *counted, keys, names)
