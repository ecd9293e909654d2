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

_M64 = 0xC6A4A7935BD1E995
_MASK64 = (1 << 64) - 1

_WORD = Struct("<I")
_LONG = Struct("<Q")
_OFFSET = Struct(">q")


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned number of 32 bits."""
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


def murmur64(data: bytes) -> int:
    """Return MurmurHash64A with seed 0. `murmur64.h` computes the same."""
    value = len(data) * _M64 & _MASK64
    whole = len(data) & ~7
    for (word,) in _LONG.iter_unpack(data[:whole]):
        word = word * _M64 & _MASK64
        word = (word ^ word >> 47) * _M64 & _MASK64
        value = (value ^ word) * _M64 & _MASK64
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M64 & _MASK64
    value = (value ^ value >> 47) * _M64 & _MASK64
    return value ^ value >> 47


def hash_of_record(key: bytes | None, offset: int) -> int:
    """Return the murmur2 hash of a record's key, or of the 8 bytes of its offset if it has no key."""
    return murmur2(_OFFSET.pack(offset) if key is None else key)


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition (BuiltInPartitioner.partitionForKey). Raises ZeroDivisionError for 0 partitions."""
    return (murmur2(key) & _POSITIVE) % partitions
