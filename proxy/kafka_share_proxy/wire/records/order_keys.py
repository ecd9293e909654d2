"""Offsets and key hashes of records, for share groups with key order (sharegroups/README.md rules 74-79)."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from typing import NamedTuple

from kafka_share_proxy.wire.codec.primitives import Buffer, uvarint
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.fetched_records import fetched_records

TAG = 27503
"""Tag in a FetchRequest between two proxies: the owner of an ordered group requests the keys of the records."""
REQUESTED = (TAG, b"\x01")
_ENDING = uvarint(TAG) + uvarint(len(REQUESTED[1])) + REQUESTED[1]
NUMBER_BYTES = 8
"""Bytes of an offset, and of a hash."""


class RecordKeys(NamedTuple):
    """Offsets and hashes of the records with a key in some batches, ascending. Other offsets have no key."""

    offsets: array[int]
    hashes: array[int]
    """Unsigned numbers of 64 bits (`key_hash.murmur64`). Equal keys have equal hashes."""

    def between(self, first: int, last: int) -> RecordKeys:
        """Return the keys of the records from `first` to `last`."""
        begin = bisect_left(self.offsets, first)
        end = bisect_left(self.offsets, last + 1, lo=begin)
        return RecordKeys(self.offsets[begin:end], self.hashes[begin:end])


NO_KEYS = RecordKeys(array("q"), array("Q"))


def keys_in(records: Buffer, first_offset: int) -> RecordKeys:
    """Return the keys of the records from this offset on. Transaction markers have none.

    Raises RemoteProtocolError if a batch is invalid, or is too large when it is decompressed, or CodecMissing.
    """
    offsets, hashes = array("q"), array("Q")
    for fetched in fetched_records(records, first_offset, check_crcs=False):
        columns = fetched.records.positions.order_keys(fetched.records.area)
        offsets.frombytes(columns[0])
        hashes.frombytes(columns[1])
    return RecordKeys(offsets, hashes)


def little_endian(keys: RecordKeys) -> tuple[bytes, bytes]:
    """Return offsets and hashes as two columns of 8 bytes."""
    return _swapped(keys.offsets[:]).tobytes(), _swapped(keys.hashes[:]).tobytes()


def from_little_endian(offsets: bytes, hashes: bytes) -> RecordKeys:
    """Return the keys in two columns. Raises RemoteProtocolError if they have different lengths."""
    if len(offsets) != len(hashes) or len(offsets) % NUMBER_BYTES:
        raise RemoteProtocolError(f"{len(offsets)} bytes of offsets do not fit {len(hashes)} bytes of hashes")
    return RecordKeys(_swapped(array("q", offsets)), _swapped(array("Q", hashes)))


def _swapped(numbers: array[int]) -> array[int]:
    """Swap the bytes of native numbers unless this machine is little endian."""
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


def is_requested(request: bytes) -> bool:
    """Return True if a FetchRequest of another proxy ends with the tagged field that requests keys."""
    return request.endswith(_ENDING)
