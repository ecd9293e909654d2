"""Kafka's hash of many keys together, computed on the bytes in which they are stored (pipeline/README.md rule 15).

Returns the same values as `kafka_share_proxy.wire.records.key_hash`. Keys of one length are the rows of a numpy matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SEED, _M = 0x9747B28C, 0x5BD1E995
_WORDS = 1 << 22
"""Maximum number of words in one matrix. More keys are hashed in several steps."""


def record_hashes(area: Any, starts: Array, sizes: Array, offsets: Array) -> Array:
    """Return int64 hashes.

    A size of -1 is a null key, whose record has the hash of the 8 bytes of its offset.
    """
    data = np.frombuffer(area, np.uint8)
    hashes = np.empty(len(starts), np.int64)
    for size in np.unique(sizes):
        chosen = np.flatnonzero(sizes == size)
        if size < 0:
            keys = offsets[chosen].astype(">i8").view(np.uint8).reshape(-1, 8)
            hashes[chosen] = _murmur2(keys)
            continue
        step = max(1, _WORDS * 4 // max(int(size), 1))
        for first in range(0, len(chosen), step):
            part = chosen[first : first + step]
            hashes[part] = _murmur2(data[starts[part][:, None] + np.arange(size)])
    return hashes


def _murmur2(keys: Array) -> Array:
    count, size = keys.shape
    m = np.uint32(_M)
    value = np.full(count, (_SEED ^ size) & 0xFFFFFFFF, np.uint32)
    whole = size & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for number in range(whole // 4):
        word = words[:, number] * m
        word ^= word >> np.uint32(24)
        value = (value * m) ^ (word * m)
    if size & 3:
        tail = np.zeros((count, 4), np.uint8)
        tail[:, : size & 3] = keys[:, whole:]
        value = (value ^ tail.view("<u4")[:, 0]) * m
    value ^= value >> np.uint32(13)
    value = value * m
    hashes: Array = (value ^ (value >> np.uint32(15))).astype(np.int64)
    return hashes
