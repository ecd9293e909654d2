"""Individual commits in the memory of their owner: filled from the topic, and emptied of what others own."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import trio

from proxy.commits.model.partition_commits import PartitionCommits
from proxy.commits.state_records import (
    INDIVIDUAL_COMMITS,
    GroupKey,
    RangePlace,
    RangeValue,
    decode_key,
    decode_range_value,
    group_time_ms,
    is_range_key,
    split_range_key,
)
from proxy.durable.state_partitions import state_partition
from proxy.loop.promise import Promise
from proxy.offsets.ranges import loaded
from proxy.wire.values import TopicPartition

LOADED_AT_ONCE = 1000
"""Records looked at in one go; then others get their turn."""

COMPRESSED_TO = 4
"""Records of ranges take a quarter of their bytes at most when they are compressed (a fourteenth was measured)."""


@dataclass(slots=True)
class CommittingGroup:
    """A group that commits individually, or once did."""

    group_id: str
    is_marked: bool = False
    """A record that says that all its commits go to the owner is in the topic, or on its way."""
    is_mark_stored: bool = False
    """It is in the topic."""
    is_mark_seen: bool = False
    """Every proxy of the fleet has said to this one that it sends the group's commits to the owner."""
    partitions: dict[TopicPartition, PartitionCommits] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    """Those of the partitions."""
    appends: dict[Promise[None], None] = field(default_factory=dict)
    """What is on its way into the topic."""
    doors: tuple[int] = field(init=False)
    """The partition of the topic, as a gate wants it."""

    def __post_init__(self) -> None:
        self.doors = (state_partition(self.group_id),)

    def topics_with_ranges(self) -> set[str]:
        """Names of topics of which a partition has ranges."""
        return {place.topic for place, held in self.partitions.items() if held.ranges}

    def of(self, place: TopicPartition) -> PartitionCommits:
        """What is known of a partition; made when it is asked for."""
        found = self.partitions.get(place)
        if found is None:
            found = self.hold(place, PartitionCommits())
        return found

    def hold(self, place: TopicPartition, commits: PartitionCommits) -> PartitionCommits:
        """This is known of a partition."""
        self.partitions[place] = commits
        self.topics.add(place.topic)
        return commits


@dataclass(slots=True)
class _Loaded:
    """Ranges of one partition as they are read; arrays, because there may be a million."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    newest: RangeValue = field(default_factory=RangeValue)
    """What was stored with the highest mark."""

    def add(self, first: int, last: int, value: RangeValue) -> None:
        """Load a record of a range."""
        self.starts.append(first)
        self.ends.append(last + 1)
        if value is not self.newest and value.committed_offset >= self.newest.committed_offset:
            self.newest = value

    def commits(self) -> PartitionCommits:
        """What is known of the partition. Ranges that overlap, or are kept in several records, are put anew."""
        ranges, change = loaded(zip(self.starts, self.ends, strict=True))
        held = PartitionCommits(ranges, stored_mark=self.newest.committed_offset, topic_id=self.newest.topic_id)
        held.not_stored(change)
        return held


class HeldCommits:
    """See described_state.HeldState."""

    def __init__(self) -> None:
        self.groups: dict[str, CommittingGroup] = {}
        self.append_bytes = COMPRESSED_TO * INDIVIDUAL_COMMITS.message_bytes
        """Records in one append, before they are compressed."""

    def group(self, group_id: str) -> CommittingGroup:
        """What is held of a group; made when it is asked for."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = CommittingGroup(group_id)
        return found

    def let_go(self, group_id: str) -> None:
        """Forget a group that was asked about and has nothing to be remembered: it is like any other."""
        group = self.groups.get(group_id)
        if group is not None and not group.is_marked and not group.appends and not group.topics_with_ranges():
            del self.groups[group_id]

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """See described_state.HeldState."""
        found: dict[RangePlace, _Loaded] = {}
        for count, (key, value) in enumerate(records):
            if count % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            if is_range_key(key):
                place, first, last = split_range_key(key)
                loading = found.get(place)
                if loading is None:
                    loading = found[place] = _Loaded()
                loading.add(first, last, decode_range_value(value))
            elif not INDIVIDUAL_COMMITS.is_keep_alive(key):
                self._load_group(decode_key(key), value)
        for place, loading in found.items():
            self.group(place.group_id).hold(TopicPartition(place.topic, place.partition), loading.commits())
            await trio.lowlevel.checkpoint()

    def _load_group(self, key: object, value: bytes) -> None:
        assert isinstance(key, GroupKey)  # noqa: S101  # the other types are told apart before
        group_time_ms(value)
        group = self.group(key.group_id)
        group.is_marked = group.is_mark_stored = True

    async def forget(self, partitions: Collection[int]) -> None:
        """See described_state.HeldState."""
        gone = set(partitions)
        for group_id in [name for name in self.groups if state_partition(name) in gone]:
            del self.groups[group_id]

    def limit_records(self, message_bytes: int) -> None:
        """See described_state.HeldState."""
        self.append_bytes = COMPRESSED_TO * message_bytes

    def figures(self) -> Mapping[str, int]:
        """See described_state.HeldState."""
        return {"groups": len(self.groups), "ranges": sum(len(each.ranges) for each in self._partitions())}

    def _partitions(self) -> Iterator[PartitionCommits]:
        for group in self.groups.values():
            yield from group.partitions.values()
