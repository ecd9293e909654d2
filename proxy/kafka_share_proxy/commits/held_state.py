"""Individual commits in the memory of their owner."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.commits.model.topic_records import TopicRecords
from kafka_share_proxy.commits.state_records import (
    BINDING,
    INDIVIDUAL_COMMITS,
    CommitKey,
    GroupKey,
    RangeKey,
    RangePartition,
    RangeValue,
    decode_key,
    decode_range_value,
    group_time_ms,
    group_value,
    is_range_key,
    range_value,
    split_range_key,
)
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.offsets.ranges import OffsetSpan, loaded
from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from kafka_share_proxy.commits.merging_commits import MergingPartition

LOADED_AT_ONCE = 1000

COMPRESSED_TO = 4
"""Lower bound of the compression ratio (14 was measured)."""


@dataclass(slots=True)
class CommittingGroup:
    """A group that commits individually, or did so earlier."""

    group_id: str
    in_metadata: bool = False
    """True if the brokers' metadata holds the ranges."""
    has_marker: bool = False
    """True if the group record is stored or being appended."""
    is_marker_stored: bool = False
    is_marker_seen: bool = False
    partitions: dict[TopicPartition, PartitionCommits] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    appends: dict[Promise[None], None] = field(default_factory=dict)
    merging: dict[tuple[bytes, int], MergingPartition] = field(default_factory=dict, compare=False)
    """Topic id and partition -> what serves its commonest commits."""
    state_partitions: tuple[int] = field(init=False)
    """The one state partition of the group, as the gate expects it."""

    def __post_init__(self) -> None:
        self.state_partitions = (state_partition(self.group_id),)

    def topics_with_ranges(self) -> set[str]:
        return {partition.topic for partition, state in self.partitions.items() if state.ranges}

    def state_of(self, partition: TopicPartition) -> PartitionCommits:
        """Return the state of a partition, created at the first call."""
        state = self.partitions.get(partition)
        if state is None:
            records = TopicRecords() if self.in_metadata else None
            state = self.set_state(partition, PartitionCommits(records=records, has_text=self.in_metadata))
        return state

    def set_state(self, partition: TopicPartition, state: PartitionCommits) -> PartitionCommits:
        self.partitions[partition] = state
        self.topics.add(partition.topic)
        self.stop_merging()
        return state

    def stop_merging(self) -> None:
        """Have what serves the commonest commits give its locks back."""
        merging = tuple(self.merging.values())
        self.merging.clear()
        for partition in merging:
            partition.give_back()


@dataclass(slots=True)
class _LoadedPartition:
    """Arrays, because there may be a million ranges."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    newest: RangeValue = field(default_factory=RangeValue)
    """Value with the highest committed offset."""
    bindings: list[OffsetSpan] = field(default_factory=list)

    def add(self, first: int, last: int, value: RangeValue) -> None:
        if value.metadata == BINDING:
            self.bindings.append(OffsetSpan(first, last + 1))
        else:
            self.starts.append(first)
            self.ends.append(last + 1)
        if value is not self.newest and value.committed_offset >= self.newest.committed_offset:
            self.newest = value

    def commits(self, *, in_metadata: bool) -> PartitionCommits:
        ranges, change = loaded(zip(self.starts, self.ends, strict=True))
        state = PartitionCommits(ranges, stored_committed=self.newest.committed_offset, topic_id=self.newest.topic_id)
        state.has_text = in_metadata or bool(self.bindings)
        state.not_stored(change)
        state.unsure.update(self.bindings)  # deleted with the next append
        if in_metadata:
            binding = self.bindings[-1] if self.bindings else None
            state.unsure.difference_update((*change.put, binding))
            state.records = TopicRecords()
            state.records.load(ranges, set(ranges).difference(change.put), binding)
        return state


class HeldCommits:
    """All groups owned here; see described_state.HeldState."""

    def __init__(self, *, in_metadata: bool = False) -> None:
        self.groups: dict[str, CommittingGroup] = {}
        self.in_metadata = in_metadata
        self.append_bytes = COMPRESSED_TO * INDIVIDUAL_COMMITS.message_bytes

    def group(self, group_id: str) -> CommittingGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = CommittingGroup(group_id, self.in_metadata)
        return group

    def let_go(self, group_id: str) -> None:
        """Drop a group without state."""
        group = self.groups.get(group_id)
        if group is not None and not group.has_marker and not group.appends and not group.topics_with_ranges():
            self.drop(group_id)

    def drop(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.stop_merging()

    async def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        loading_partitions: dict[RangePartition, _LoadedPartition] = {}
        for count, (key, value) in enumerate(records):
            if count % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            if is_range_key(key):
                partition, first, last = split_range_key(key)
                loading = loading_partitions.get(partition)
                if loading is None:
                    loading = loading_partitions[partition] = _LoadedPartition()
                loading.add(first, last, decode_range_value(value))
            elif not INDIVIDUAL_COMMITS.is_keep_alive(key):
                self._load_group(decode_key(key), value)
        for partition, loading in loading_partitions.items():
            commits = loading.commits(in_metadata=self.in_metadata)
            self.group(partition.group_id).set_state(TopicPartition(partition.topic, partition.partition), commits)
            await trio.lowlevel.checkpoint()

    def _load_group(self, key: object, value: bytes) -> None:
        assert isinstance(key, GroupKey)  # noqa: S101  # the other types were handled before
        group_time_ms(value)
        group = self.group(key.group_id)
        group.has_marker = group.is_marker_stored = True

    async def forget(self, partitions: Collection[int]) -> None:
        forgotten = set(partitions)
        for group_id in [name for name in self.groups if state_partition(name) in forgotten]:
            self.drop(group_id)

    def stored(self, partitions: Collection[int], time_ms: int) -> Iterator[tuple[CommitKey, bytes]]:
        for group in [group for name, group in self.groups.items() if state_partition(name) in partitions]:
            if group.is_marker_stored:
                yield GroupKey(group.group_id), group_value(time_ms)
            for (topic, partition), state in list(group.partitions.items()):
                committed = state.committed if state.is_committed_known else state.stored_committed
                value = RangeValue(state.topic_id, -1, committed, time_ms, "")
                encoded = range_value(value)
                for start, end in list(state.ranges if state.records is None else state.records.stored):
                    yield RangeKey(group.group_id, topic, partition, start, end - 1), encoded
                if state.records is not None and state.records.binding is not None:
                    start, end = state.records.binding
                    key = RangeKey(group.group_id, topic, partition, start, end - 1)
                    yield key, range_value(value._replace(metadata=BINDING))

    def limit_records(self, message_bytes: int) -> None:
        self.append_bytes = COMPRESSED_TO * message_bytes

    def figures(self) -> Mapping[str, int]:
        return {"groups": len(self.groups), "ranges": sum(len(each.ranges) for each in self._partitions())}

    def _partitions(self) -> Iterator[PartitionCommits]:
        for group in self.groups.values():
            yield from group.partitions.values()
