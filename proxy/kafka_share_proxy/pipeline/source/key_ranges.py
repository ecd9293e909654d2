"""Contiguous ranges of the space of key hashes (pipeline/README.md rules 3, 4)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from kafka_share_proxy.views.model.plans import HASH_SPACE, read
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.key_filter import RANGES_MAX, TAG, NullKeys
from kafka_share_proxy.wire.records.key_hash import hash_of_record

KEY_FILTER_TAG = TAG


class KeyRanges(NamedTuple):
    """Range i begins at starts[i] and ends where the next begins."""

    starts: tuple[int, ...] = (0,)

    @classmethod
    def even(cls, count: int) -> KeyRanges:
        """Return ranges of equal width (views/README.md rule 4). Raises ValueError."""
        if not 1 <= count <= RANGES_MAX:
            raise ValueError(f"1 to {RANGES_MAX} key ranges, not {count}")
        return cls(tuple(-(-number * HASH_SPACE // count) for number in range(count)))

    @classmethod
    def of_plan(cls, text: str | bytes) -> KeyRanges:
        """Return the ranges of a plan file. Raises BadPlan."""
        return cls(read("file", text).starts)

    @property
    def bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, (*self.starts[1:], HASH_SPACE), strict=True)

    def range_of(self, key: bytes | None, offset: int) -> int:
        """Return the range of a record. Without a key the hash of its offset counts."""
        return bisect_right(self.starts, hash_of_record(key, offset)) - 1


def key_filter(low: int, high: int, keys: tuple[bytes, ...] = ()) -> bytes | None:
    """Return the encoded KeyFilter for low <= hash < high, or for these keys alone. None selects everything."""
    if not keys and (low, high) == (0, HASH_SPACE):
        return None
    ranges = [] if keys else [messages.KeyFilter.HashRange(first=low, last=high - 1)]
    null_keys = NullKeys.DROP if keys else NullKeys.BY_OFFSET
    message = messages.KeyFilter(ranges=ranges, keys=list(keys), null_keys=null_keys)
    return registry.codec_of(messages.KeyFilter, 0).encode(message)


def scanned_to(entry: messages.FetchResponse.PartitionData) -> int | None:
    """Return the offset up to which the KeyFilter was applied, or None if the server did not apply it."""
    for tag, content in entry.unknown_tags:
        if tag == KEY_FILTER_TAG:
            return registry.codec_of(messages.KeyFilterApplied, 0).decode(bytes(content)).scanned_to
    return None
