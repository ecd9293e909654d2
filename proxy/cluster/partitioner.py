"""Which partition a key belongs to: Kafka's own hash, so that any client finds the same one.

Source: Utils.murmur2 and BuiltInPartitioner.partitionForKey of Kafka's Java client.
"""

from __future__ import annotations

from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

_WORD = Struct("<I")


def murmur2(data: bytes) -> int:
    """The 32-bit hash, as an unsigned number."""
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


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key; raises ZeroDivisionError when there is none."""
    return (murmur2(key) & _POSITIVE) % partitions
