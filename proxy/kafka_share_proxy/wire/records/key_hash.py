"""Kafka's hash of record keys.

Source: Utils.murmur2 of Kafka's Java client. `murmur2.h` computes the same.
"""

from __future__ import annotations

from struct import Struct

SPACE = 1 << 32
"""Number of hashes: a hash is in [0, SPACE)."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

_WORD = Struct("<I")
_OFFSET = Struct(">q")


def murmur2(data: bytes) -> int:
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        word = word * _M & _MASK
        word ^= word >> 24
        value = (value * _M & _MASK) ^ (word * _M & _MASK)
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value ^= value >> 13
    value = value * _M & _MASK
    return value ^ value >> 15


def hash_of_record(key: bytes | None, offset: int) -> int:
    """Use the 8 bytes of the offset for a record without a key."""
    return murmur2(_OFFSET.pack(offset) if key is None else key)


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition (BuiltInPartitioner.partitionForKey). Raises ZeroDivisionError for 0 partitions."""
    return (murmur2(key) & _POSITIVE) % partitions
