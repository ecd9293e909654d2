"""Committed offsets of one group, with those of open transactions (OffsetMetadataManager of Kafka 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from kafka_share_proxy.conformance.target.individual_commits import (
    CommittedOffset,
    RequestedOffset,
    base_of,
    with_ranges,
)
from kafka_share_proxy.offsets.commit_text import RANGES_MAX
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

OFFSETS_MAX = 1_000_000
"""Maximum number of offsets of a group. A commit beyond it gets INVALID_COMMIT_OFFSET_SIZE."""


class PendingOffset(NamedTuple):
    """Offset and ranges that count once the transaction commits."""

    committed: CommittedOffset
    done: OffsetRanges


@dataclass
class GroupOffsets:
    """Offsets by partition."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, PendingOffset]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id."""
    individual: dict[TopicPartition, PartitionCommits] = field(default_factory=dict)
    """Partitions that had an individual commit."""

    def is_full(self, partition: TopicPartition) -> bool:
        return len(self.committed) >= OFFSETS_MAX and partition not in self.committed

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return True if an open transaction has an offset of this partition."""
        return any(partition in offsets for offsets in self.pending.values())

    def shown(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset, moved over ranges that touch it, with the text of those above it."""
        committed, held = self.committed.get(partition), self.individual.get(partition)
        if committed is None or held is None:
            return committed
        offset, ranges = held.shown(committed.offset)
        epoch = committed.leader_epoch if offset == committed.offset else -1
        return with_ranges(committed._replace(offset=offset, leader_epoch=epoch), ranges)

    # Commits

    def commit(self, partition: TopicPartition, requested: RequestedOffset) -> ErrorCode:
        """Commit an offset, and merge its ranges into those of the group (commits/README.md rules 7, 9, 12, 18)."""
        committed, done = requested
        if done is not None and self._is_divided_otherwise(partition.topic):
            return ErrorCode.INVALID_REQUEST
        held, is_pending = self._held(partition, requested), self.is_pending(partition)
        if held is None or (is_pending and done is None):
            self.committed[partition] = committed
            return ErrorCode.NONE
        if is_pending:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        commit = PartitionCommit(committed.offset, done)
        plan = held.plan(commit)
        if done is not None and plan.ranges > RANGES_MAX:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        epoch = committed.leader_epoch
        if plan.offset != committed.offset:
            epoch = held.committed_epoch if plan.offset == held.committed else -1
        held.accepted(commit, plan.offset, epoch)
        self.committed[partition] = committed._replace(offset=plan.offset, leader_epoch=epoch)
        return ErrorCode.NONE

    def add_pending(
        self, producer_id: int, partition: TopicPartition, requested: RequestedOffset, metadata_max: int
    ) -> ErrorCode:
        """Hold an offset and its ranges until the transaction ends (commits/README.md rules 17 and 18).

        `metadata_max`: maximum number of characters, with the ranges.
        """
        committed, done = requested
        if done is not None and self._is_divided_otherwise(partition.topic):
            return ErrorCode.INVALID_REQUEST
        held = self._held(partition, requested)
        ranges = OffsetRanges()
        if held is not None:
            other_producers = [offsets for each, offsets in self.pending.items() if each != producer_id]
            if done is not None and any(partition in offsets for offsets in other_producers):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            commit, producer = PartitionCommit(committed.offset, done), (producer_id, 0)
            offset, outstanding = held.in_transaction(commit, producer)
            if done is not None and len(with_ranges(committed, outstanding).metadata) > metadata_max:
                return ErrorCode.OFFSET_METADATA_TOO_LARGE
            held.committed_in_transaction(commit, producer)
            ranges = ranges if done is None else outstanding
            if offset != committed.offset:
                committed = committed._replace(offset=offset, leader_epoch=-1)
        self.pending.setdefault(producer_id, {})[partition] = PendingOffset(committed, ranges)
        return ErrorCode.NONE

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Commit or drop the offsets of a transaction."""
        for partition, pending in self.pending.pop(producer_id, {}).items():
            if commits:
                self.committed[partition] = pending.committed
            held, committed = self.individual.get(partition), self.committed.get(partition, CommittedOffset(-1))
            if held is not None:
                held.learn_committed(committed.offset, committed.leader_epoch, pending.done if commits else ())

    def _held(self, partition: TopicPartition, requested: RequestedOffset) -> PartitionCommits | None:
        """Return the ranges of a partition, which its first individual commit begins."""
        held = self.individual.get(partition)
        if held is None and requested.done is not None:
            held = self.individual[partition] = PartitionCommits()
            committed = self.committed.get(partition, CommittedOffset(-1))
            held.learn_committed(committed.offset, committed.leader_epoch)
        return held

    def _is_divided_otherwise(self, topic: str) -> bool:
        """Return True if there are ranges of the base, or of another view of it (commits/README.md rule 13)."""
        other_topics = {each.topic for each, held in self.individual.items() if held.ranges and each.topic != topic}
        return base_of(topic) in map(base_of, other_topics)

    # Deletions

    def delete(self, partition: TopicPartition) -> None:
        """Delete the offset of a partition with its ranges."""
        self.committed.pop(partition, None)
        self.individual.pop(partition, None)

    def delete_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic."""
        for partition in [each for each in (*self.committed, *self.individual) if each.topic == topic]:
            self.delete(partition)
        for offsets in self.pending.values():
            for partition in [each for each in offsets if each.topic == topic]:
                del offsets[partition]
