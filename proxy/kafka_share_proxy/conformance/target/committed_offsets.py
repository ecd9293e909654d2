"""Committed offsets of one group, with those of open transactions (OffsetMetadataManager of Kafka 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.wire.values import TopicPartition

OFFSETS_MAX = 1_000_000
"""Maximum number of offsets of a group. A commit beyond it gets INVALID_COMMIT_OFFSET_SIZE."""


class CommittedOffset(NamedTuple):
    """One committed offset."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass
class GroupOffsets:
    """Offsets by partition."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """Offsets of open transactions, by producer id."""

    def is_full(self, partition: TopicPartition) -> bool:
        return len(self.committed) >= OFFSETS_MAX and partition not in self.committed

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return True if an open transaction has an offset of this partition."""
        return any(partition in offsets for offsets in self.pending.values())

    def add_pending(self, producer_id: int, partition: TopicPartition, offset: CommittedOffset) -> None:
        self.pending.setdefault(producer_id, {})[partition] = offset

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """Commit or drop the offsets of a transaction."""
        offsets = self.pending.pop(producer_id, {})
        if commits:
            self.committed.update(offsets)

    def delete_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic."""
        for offsets in (self.committed, *self.pending.values()):
            for partition in [each for each in offsets if each.topic == topic]:
                del offsets[partition]
