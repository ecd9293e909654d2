"""Filter for the records of a partition: ranges of key hashes, or whole slots of a view (consumer/README.md rules 42 to
44).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.key_filter import KEYS_MAX, RANGES_MAX, NullKeys
from kafka_share_proxy.wire.records.key_hash import SPACE
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.values import TopicPartition

SLOTS_MIN, SLOTS_MAX = 2, 1024


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Accepts records whose key hashes into one of the ranges, or equals one of the keys."""

    ranges: tuple[tuple[int, int], ...] = ()
    """(first, last) hash of each range, both included: murmur2 of the key as an unsigned number, 0 to 2^32 - 1."""
    keys: tuple[bytes, ...] = ()
    """Keys that are accepted regardless of their hash."""
    null_keys: NullKeys = NullKeys.DROP
    """Treatment of records without a key."""
    slots: tuple[int, ...] = ()
    """Slots of a view under whose names offsets are committed. Empty for a filter without slots."""
    of: int = 0
    """Number of slots of that view."""
    content: bytes = field(init=False, repr=False, compare=False)
    """Encoded filter, for the tag of FetchPartition."""
    _known: frozenset[bytes] = field(init=False, repr=False, compare=False)
    _bounds: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """First hash and hash after the last of each range, ascending."""

    def __post_init__(self) -> None:
        """Raises ValueError if the filter is empty or too large, or a range is invalid."""
        if not self.ranges and not self.keys:
            raise ValueError("a key filter names neither ranges nor keys: leave it out to read everything")
        if len(self.ranges) > RANGES_MAX or len(self.keys) > KEYS_MAX:
            raise ValueError(f"a key filter has at most {RANGES_MAX} ranges and {KEYS_MAX} keys")
        object.__setattr__(self, "_known", frozenset(self.keys))
        object.__setattr__(self, "_bounds", _bounds(self.ranges))
        message = messages.KeyFilter
        filter_message = message(
            ranges=[message.HashRange(first=first, last=last) for first, last in self.ranges],
            keys=list(self.keys),
            null_keys=self.null_keys,
        )
        object.__setattr__(self, "content", registry.codec_of(message, 0).encode(filter_message))

    def unwanted(self, records: LazyRecords) -> list[int]:
        """Return rejected offsets. No record object is created."""
        positions = records.positions
        accepted = [bisect_right(self._bounds, each) % 2 for each in positions.key_hashes(records.area)]
        if self.null_keys != NullKeys.BY_OFFSET:
            keep = self.null_keys == NullKeys.KEEP
            accepted = [keep if size < 0 else each for size, each in zip(positions.key_sizes, accepted, strict=True)]
        if self._known:
            keys = memoryview(records.area)
            key_bounds = zip(positions.key_starts, positions.key_sizes, accepted, strict=True)
            accepted = [
                each or (size >= 0 and bytes(keys[start : start + size]) in self._known)
                for start, size, each in key_bounds
            ]
        return [offset for offset, each in zip(positions.offsets, accepted, strict=True) if not each]

    def committed_as(self, partition: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return the topic-partitions under which a base partition is committed: with slots, its slots in the view."""
        if not self.slots:
            return (partition,)
        view = f"__view.r{self.of}.{partition.topic}"
        return tuple(TopicPartition(view, partition.partition * self.of + slot) for slot in self.slots)


def slots_of(of: int, slots: Iterable[int]) -> KeyFilter:
    """Return a filter for some slots of the view `__view.r<of>.<topic>`, which are read and committed together.

    `of` is the number of slots, 2 to 1024. Raises ValueError if the list is empty or the view cannot have these slots.
    """
    listed = tuple(sorted(set(slots)))
    if not SLOTS_MIN <= of <= SLOTS_MAX:
        raise ValueError(f"a view of {of} slots: {SLOTS_MIN} to {SLOTS_MAX} are possible")
    if not listed or not 0 <= listed[0] <= listed[-1] < of:
        raise ValueError(f"slots {listed} of {of}: name some of 0 to {of - 1}")
    ranges = tuple((_first_hash(slot, of), _first_hash(slot + 1, of) - 1) for slot in listed)
    return KeyFilter(ranges, null_keys=NullKeys.BY_OFFSET, slots=listed, of=of)


def _first_hash(slot: int, of: int) -> int:
    """Return the first hash of a slot (views/README.md rule 4)."""
    return -(-slot * SPACE // of)


def _bounds(ranges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    bounds: list[int] = []
    for first, last in sorted(ranges):
        if not 0 <= first <= last < SPACE:
            raise ValueError(f"{first} to {last} is no range of hashes: 0 to {SPACE - 1}, the lower one first")
        if bounds and first <= bounds[-1]:
            bounds[-1] = max(bounds[-1], last + 1)
        else:
            bounds += (first, last + 1)
    return tuple(bounds)
