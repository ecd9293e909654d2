"""Hashes of some keys of one batch, without an object for each record: what load by key range is estimated from.

By the C extension `proxy.wire._record_positions` where it could be built, else by the twin here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from proxy.wire.errors import RemoteProtocolError
from proxy.wire.key_hash import SPACE, hash_of_record
from proxy.wire.primitives import Buffer
from proxy.wire.record_headers import sized
from proxy.wire.record_positions import EXTENSION, INT32_MAX, RECORD_MIN
from proxy.wire.varints import read_varlong

BUCKET_SHIFT = 20
"""Of a hash, 32 bits wide: the upper 12 tell the bucket."""
BUCKETS = SPACE >> BUCKET_SHIFT

ROW = Struct("=II")
"""One sample: the hash, and the bytes of key and value; of native byte order."""


class KeySample(NamedTuple):
    """Some records of a batch, a `ROW` for each."""

    keyed: bytes
    null: bytes
    """Those without a key; they lie where the hash of their offset does (`key_hash.hash_of_record`)."""

    @property
    def rows(self) -> int:
        """How many records were looked at."""
        return (len(self.keyed) + len(self.null)) // ROW.size


def sample(area: Buffer, count: int, base_offset: int, first: int = 0, every: int = 1) -> KeySample:
    """The keys of the records number `first`, `first` + `every` and so on.

    Args:
        area: what follows the header of a batch of magic 2, opened.
        count: records, as the header says.
        base_offset: of the batch.
        first: counts from 0.
        every: 1 or more.

    Raises:
        RemoteProtocolError: these bytes are not so many records, as far as they were looked at.
    """
    try:
        return KeySample(*_sample(area, count, base_offset, first, every))
    except ValueError as error:
        raise RemoteProtocolError(f"the record batch at offset {base_offset}: {error}") from error


def tally(samples: bytes, records: array[int], sizes: array[int]) -> None:
    """Add samples to the buckets of their hashes: to `records` (of uint32) one, to `sizes` (of uint64) their bytes.

    Raises:
        ValueError: arrays of another length than BUCKETS, or bytes that are no samples.
    """
    _tally(samples, records, sizes)


def buckets() -> tuple[array[int], array[int]]:
    """Empty ones, for `tally`."""
    return array("I", bytes(4 * BUCKETS)), array("Q", bytes(8 * BUCKETS))


# The twin of the extension


def _twin_sample(area: Buffer, count: int, base_offset: int, first: int, every: int) -> tuple[bytes, bytes]:
    if not (0 <= count <= INT32_MAX and 0 <= first <= INT32_MAX and 1 <= every <= INT32_MAX):
        raise ValueError("numbers of records that no batch has")
    if count * RECORD_MIN > len(area):
        raise ValueError(f"{count} records cannot be in {len(area)} bytes")
    data, position = bytes(area), 0
    keyed, null = bytearray(), bytearray()
    number, wanted = 0, range(first, count, every)
    try:
        for number in range(wanted[-1] + 1 if wanted else 0):
            length, position = read_varlong(data, position)
            if not 1 <= length <= len(data) - position:
                raise ValueError("its length is none, or more than is left")
            if number in wanted:
                hashed, has_key, size = _read(data[position : position + length], base_offset)
                (keyed if has_key else null).extend(ROW.pack(hashed, size))
            position += length
    except (IndexError, ValueError, RemoteProtocolError) as error:
        raise ValueError(f"record {number} (from 0): {error}") from error
    return bytes(keyed), bytes(null)


def _read(record: bytes, base_offset: int) -> tuple[int, bool, int]:
    """Hash, whether there is a key, and bytes of key and value."""
    _, position = read_varlong(record, 1)
    delta, position = read_varlong(record, position)
    if not 0 <= delta <= INT32_MAX:
        raise ValueError("its offset is not within the batch")
    key_size, start = sized(record, position)
    value_size, _ = sized(record, start + max(key_size, 0))
    key = None if key_size < 0 else record[start : start + key_size]
    return hash_of_record(key, base_offset + delta), key is not None, max(key_size, 0) + max(value_size, 0)


def _twin_tally(samples: bytes, records: array[int], sizes: array[int]) -> None:
    if len(samples) % ROW.size or len(records) != BUCKETS or len(sizes) != BUCKETS:
        raise ValueError("no such samples or buckets")
    for hashed, size in ROW.iter_unpack(samples):
        records[hashed >> BUCKET_SHIFT] += 1
        sizes[hashed >> BUCKET_SHIFT] += size


_sample: Callable[[Buffer, int, int, int, int], tuple[bytes, bytes]]
_sample = _twin_sample if EXTENSION is None else EXTENSION.sample
_tally: Callable[[bytes, array[int], array[int]], None]
_tally = _twin_tally if EXTENSION is None else EXTENSION.tally
