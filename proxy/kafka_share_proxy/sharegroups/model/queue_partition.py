"""A share partition of a group with key order, redelivery delay or dead letters (sharegroups/README.md rule 73).

The class is chosen by the settings of the group (`class_for`), so that every other group has the plain
`SharePartition`. Changed settings convert a share partition that is loaded; its locks and pending changes stay.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_share_proxy.sharegroups.model.offset_runs import (
    ARCHIVED,
    AVAILABLE,
    BLOCKED,
    DELAYED,
    EXHAUSTED,
    REJECTED,
    Transition,
)
from kafka_share_proxy.sharegroups.model.partition import SharePartition
from kafka_share_proxy.sharegroups.model.queue_settings import NO_QUEUE, QueueSettings
from kafka_share_proxy.sharegroups.model.snapshot import ARCHIVING, ShareSnapshot

_PLAIN_STATES = {BLOCKED: AVAILABLE, DELAYED: AVAILABLE, REJECTED: ARCHIVED, EXHAUSTED: ARCHIVED}
"""State that a plain share partition has instead."""
_STORED_STATES = {BLOCKED: AVAILABLE, DELAYED: AVAILABLE, REJECTED: ARCHIVING, EXHAUSTED: ARCHIVING}


class QueuePartition(SharePartition):
    """All state of one (group, topic, partition) of a queue."""

    queue: QueueSettings = NO_QUEUE

    @classmethod
    def of(cls, plain: SharePartition, queue: QueueSettings) -> QueuePartition:
        """Return a queue with the state of `plain`, which must not be used afterwards. A queue gets the settings."""
        if isinstance(plain, QueuePartition):
            plain.queue = queue
            return plain
        partition = cls(plain.start_offset, plain.state_epoch, locks=plain.index, key=plain.key)
        partition.queue = queue
        _take_over(partition, plain)
        return partition

    def plain(self) -> SharePartition:
        """See SharePartition."""
        plain = SharePartition(self.start_offset, self.state_epoch, locks=self.index, key=self.key)
        _take_over(plain, self)
        for run in list(plain.runs):
            if run.state in _PLAIN_STATES:
                plain.free(run, _PLAIN_STATES[run.state])
            run.target = _PLAIN_STATES.get(run.target, run.target)
        plain.advance()
        return plain

    def loaded_state(self, snapshot: ShareSnapshot, first: int, state: int) -> int:
        if state != ARCHIVING:
            return state
        return REJECTED if first in snapshot.rejected else EXHAUSTED

    def snapshot(self, *transitions: Transition) -> ShareSnapshot:
        plain = super().snapshot(*transitions)
        batches: list[tuple[int, int, int, int]] = []
        for first, last, state, count in plain.batches:
            stored = _STORED_STATES.get(state, state)
            if stored != AVAILABLE or count:
                batches.append((first, last, stored, count))
        rejected = frozenset(first for first, _, state, _ in plain.batches if state == REJECTED)
        return replace(plain, batches=tuple(batches), rejected=rejected)


def class_for(queue: QueueSettings | None) -> type[SharePartition]:
    """Return the class of share partitions of a group with these settings."""
    return SharePartition if queue is None else QueuePartition


def partition_of(partition: SharePartition, queue: QueueSettings | None) -> SharePartition:
    """Return the share partition for these settings: `partition`, or another with its state that replaces it."""
    return partition.plain() if queue is None else QueuePartition.of(partition, queue)


def _take_over(new: SharePartition, old: SharePartition) -> None:
    """Move the window of `old` to `new`."""
    new.start_offset, new.end_offset, new.free_from = old.start_offset, old.end_offset, old.free_from
    new.runs, new.firsts = old.runs, old.firsts
    new.offsets_max, new.reports_offsets = old.offsets_max, old.reports_offsets
    for run in new.runs:
        run.partition = new
