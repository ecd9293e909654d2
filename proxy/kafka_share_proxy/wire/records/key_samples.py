"""Hashes of sampled keys of one batch, without an object for each record.

The C extension `kafka_share_proxy.wire.records._record_positions` computes them, or the Python fallback here.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.codec.varints import read_varlong
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.key_hash import SPACE, hash_of_record
from kafka_share_proxy.wire.records.record_headers import sized
from kafka_share_proxy.wire.records.record_positions import EXTENSION, INT32_MAX, RECORD_MIN

BUCKET_SHIFT = 20
"""Right shift that maps a hash into its bucket, the upper 12 bits."""
BUCKETS = SPACE >> BUCKET_SHIFT

UINT32_MAX, UINT64_MAX = (1 << 32) - 1, (1 << 64) - 1

KEY_MAX = 256
"""Maximum bytes of a key that is returned with a sample."""

ROW = Struct("=II")
"""Hash, and bytes of key and value, in native byte order."""


class KeySample(NamedTuple):
    """Sampled records of a batch, one `ROW` for each."""

    keyed: bytes
    null: bytes
    """Records without a key. Their hash is that of their offset."""
    key: bytes | None = None
    """None if no record of `keyed` has a key of at most KEY_MAX bytes."""

    @property
    def rows(self) -> int:
        return (len(self.keyed) + len(self.null)) // ROW.size


def sample(area: Buffer, count: int, base_offset: int, first: int = 0, every: int = 1) -> KeySample:
    """Sample the records with index `first`, `first` + `every` and so on.

    `area`: decompressed bytes after the header of a batch of magic 2. Raises RemoteProtocolError if the bytes are not
    `count` records, as far as they were parsed.
    """
    try:
        return KeySample(*_sample(area, count, base_offset, first, every))
    except ValueError as error:
        raise RemoteProtocolError(f"the record batch at offset {base_offset}: {error}") from error


def tally(samples: bytes, records: array[int], sizes: array[int], weight: int = 1) -> int:
    """Add samples to their buckets. Return the number of pairs in the same bucket.

    Args:
        samples: rows of a KeySample.
        records: uint32 for each bucket; each sample adds `weight`.
        sizes: uint64 for each bucket; each sample adds `weight` times its bytes.
        weight: number of records that each sample represents, 1 to 2^32 - 1.

    Raises ValueError if an array does not have BUCKETS elements, `samples` has no whole rows, or the weight is invalid.
    """
    return _tally(samples, records, sizes, weight)


def buckets() -> tuple[array[int], array[int]]:
    return array("I", bytes(4 * BUCKETS)), array("Q", bytes(8 * BUCKETS))


OWN_PAIRS_MAX = 0.5
"""Share of pairs within one look above which there are too few looks to compare them."""
ALIKE_UNKNOWN = 0.05
"""Assumed intraclass correlation of one look."""


class SampleShape(NamedTuple):
    """Statistics of how a sample was drawn."""

    records: float
    """Sum over looks of weight x keys."""
    squares: float
    """Sum of weight^2 x keys."""
    largest: float
    """Sum of weight^2 x keys^2."""
    pairs: float
    pairs_max: float
    """Number of pairs of keys in one look."""


def effective_size(shape: SampleShape, weights: Iterable[float]) -> int:
    """Return the size of a simple random sample of equal precision.

    Unequal weights cost (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965, 11.7). Keys of one look may be similar: if
    the intraclass correlation of their buckets is r, looks of m keys are worth 1 / (1 + (m - 1) r) as much (Kish 8.2).
    As a mean over all buckets, that is the mean design effect of Rao and Scott (1981). A single look cannot determine
    r.
    """
    by_weight = shape.records**2 / shape.squares
    mean_keys = shape.largest / shape.squares
    return max(round(by_weight / (1 + (mean_keys - 1) * _alike(shape, weights))), 1)


def _alike(shape: SampleShape, weights: Iterable[float]) -> float:
    """Return the intraclass correlation, from pairs within one look and across looks."""
    own = shape.largest / shape.records**2
    if not shape.pairs_max:
        return 0.0
    if own > OWN_PAIRS_MAX:
        return ALIKE_UNKNOWN
    within = shape.pairs / shape.pairs_max
    every = sum(weight * weight for weight in weights) / shape.records**2
    within_look = (shape.squares * (1 - within) + shape.largest * within) / shape.records**2
    between = max((every - within_look) / (1 - own), 0.0)
    return min(max((within - between) / (1 - between), 0.0), 1.0) if between < 1 else 0.0


# Python fallback of the extension


def _python_sample(
    area: Buffer, count: int, base_offset: int, first: int, every: int
) -> tuple[bytes, bytes, bytes | None]:
    if not (0 <= count <= INT32_MAX and 0 <= first <= INT32_MAX and 1 <= every <= INT32_MAX):
        raise ValueError("numbers of records that no batch has")
    if count * RECORD_MIN > len(area):
        raise ValueError(f"{count} records cannot be in {len(area)} bytes")
    data, position = bytes(area), 0
    keyed, null, first_key = bytearray(), bytearray(), None
    number, indexes = 0, range(first, count, every)
    try:
        for number in range(indexes[-1] + 1 if indexes else 0):
            length, position = read_varlong(data, position)
            if not 1 <= length <= len(data) - position:
                raise ValueError("its length is none, or more than is left")
            if number in indexes:
                hashed, key, size = _read(data[position : position + length], base_offset)
                if key is not None and not keyed and len(key) <= KEY_MAX:
                    first_key = key
                (null if key is None else keyed).extend(ROW.pack(hashed, size))
            position += length
    except (IndexError, ValueError, RemoteProtocolError) as error:
        raise ValueError(f"record {number} (from 0): {error}") from error
    return bytes(keyed), bytes(null), first_key


def _read(record: bytes, base_offset: int) -> tuple[int, bytes | None, int]:
    _, position = read_varlong(record, 1)
    delta, position = read_varlong(record, position)
    if not 0 <= delta <= INT32_MAX:
        raise ValueError("its offset is not within the batch")
    key_size, start = sized(record, position)
    value_size, _ = sized(record, start + max(key_size, 0))
    key = None if key_size < 0 else record[start : start + key_size]
    return hash_of_record(key, base_offset + delta), key, max(key_size, 0) + max(value_size, 0)


def _python_tally(samples: bytes, records: array[int], sizes: array[int], weight: int) -> int:
    fits = not len(samples) % ROW.size and len(records) == len(sizes) == BUCKETS
    if not fits or not 1 <= weight <= UINT32_MAX:
        raise ValueError("no such samples, buckets or weight")
    records_by_bucket = Counter[int]()
    for hashed, size in ROW.iter_unpack(samples):
        bucket = hashed >> BUCKET_SHIFT
        records[bucket] = (records[bucket] + weight) & UINT32_MAX
        sizes[bucket] = (sizes[bucket] + size * weight) & UINT64_MAX
        records_by_bucket[bucket] += 1
    return sum(count * (count - 1) // 2 for count in records_by_bucket.values())


_sample: Callable[[Buffer, int, int, int, int], tuple[bytes, bytes, bytes | None]]
_sample = _python_sample if EXTENSION is None else EXTENSION.sample
_tally: Callable[[bytes, array[int], array[int], int], int]
_tally = _python_tally if EXTENSION is None else EXTENSION.tally
