"""State of one partition of one group, and the effect of a commit on it (commits/README.md rules 7 to 9, 14, 15).

Pure. A commit is first planned, then sent to the broker. What the broker accepts is applied to memory immediately, and
the changed records are returned for storing. If storing fails, the next append repeats all of them, and until then a
commit without changes must not be reported as stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.commits.model.topic_records import NOTHING, TextPlan, TopicChange, TopicRecords, fitting
from kafka_share_proxy.offsets.partition_commits import CommitOutcome, after_individual_commit, after_plain_commit
from kafka_share_proxy.offsets.ranges import NO_CHANGE, OffsetRanges, OffsetSpan, RangeChange
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID

NOTHING_COMMITTED = -1
TextBounds = tuple["array[int]", "array[int]"]
"""Starts and ends of the ranges, ascending. The arrays change with the ranges."""
UNSEEN_MAX_S = 5.0
"""Seconds that a transaction begun at another proxy is waited for."""


class PartitionCommit(NamedTuple):
    """One partition of a member's commit."""

    offset: int
    done: OffsetRanges | None = None
    """None in a plain commit."""


class CommitPlan(NamedTuple):
    """Outcome of a commit if the broker accepts it."""

    offset: int
    moves: bool
    """True if the committed offset changes (commits/README.md rule 10)."""
    ranges: int


class OpenTransaction(NamedTuple):
    """Commits of a producer in a transaction that may still be open."""

    producer: tuple[int, int]
    """Producer id and epoch."""
    done: OffsetRanges


@dataclass(slots=True)
class PartitionCommits:
    """Committed offset and ranges of one partition. `committed` is valid only while `is_committed_known`."""

    ranges: OffsetRanges = field(default_factory=OffsetRanges)
    committed: int = NOTHING_COMMITTED
    committed_epoch: int = -1
    is_committed_known: bool = False
    stored_committed: int = NOTHING_COMMITTED
    """A lower committed offset at the broker means that the group was rewound."""
    topic_id: bytes = ZERO_UUID
    """Zero if unknown."""
    unsure: set[OffsetSpan] = field(default_factory=set)
    """Ranges that may or may not be in the topic, because their append failed."""
    is_stored_first: bool = False
    """True until an append is confirmed that has to precede the next commit."""
    transaction: OpenTransaction | None = None
    records: TopicRecords | None = None
    """Records in the topic, if the broker's metadata holds the ranges. None if all ranges are in the topic."""
    has_text: bool = False
    """True if the broker's metadata may hold ranges from a proxy that keeps them there."""
    is_text_foreign: bool = False
    """True if these may be ranges of a deleted topic (commits/README.md rule 32)."""
    _foreign_text: OffsetRanges | None = None
    """Ranges of this text. None until they are read."""
    unseen_since: float | None = None
    """Time at which the broker first reported an open transaction that began at another proxy. None without one."""
    _planned: tuple[PartitionCommit, CommitOutcome] | None = field(default=None, compare=False)
    _planned_ranges: OffsetRanges | None = field(default=None, compare=False)
    """Ranges after the planned commit, if they were computed."""
    kept_bounds: TextBounds | None = field(default=None, compare=False)
    """Last result of `bounds_in_text`. None once it may be another one."""

    @property
    def last_committed(self) -> int:
        """Committed offset, as far as it was seen. Negative without one."""
        return self.committed if self.is_committed_known else self.stored_committed

    @property
    def offsets_done(self) -> int:
        """Number of offsets in the ranges."""
        return sum(span.end - span.start for span in self.ranges)

    @property
    def offsets_open(self) -> int:
        committed = max(self.last_committed, 0)
        end = self.ranges.end
        return sum(span.end - span.start for span in self.ranges.gaps(committed, end)) if end > committed else 0

    # A commit

    def plan(self, commit: PartitionCommit) -> CommitPlan:
        """`is_committed_known` must be true."""
        done = commit.done
        if done is not None and self.records is None and self.keeps_committed(commit):
            return CommitPlan(self.committed, False, self.ranges.count_merged(done.start, done.end))
        committed, change = self._outcome(commit)
        offset = commit.offset if committed is None else committed
        return CommitPlan(offset, offset != self.committed, len(self.ranges) + len(change.put) - len(change.removed))

    def keeps_committed(self, commit: PartitionCommit) -> bool:
        """True for a single range above the committed offset that no stored range touches, as in nearly all commits."""
        committed, done = self.committed, commit.done
        if done is None or len(done) != 1:
            return False
        return commit.offset <= committed < done.start and committed < self.ranges.start

    def accepted(self, commit: PartitionCommit, offset: int, leader_epoch: int) -> RangeChange:
        """Return the change to store."""
        done, planned = commit.done, self._planned
        if planned is not None and planned[0] is commit and planned[1].offset == offset and self._planned_ranges:
            change, self.ranges = planned[1].change, self._planned_ranges
        elif done is not None and self.records is None and offset == self.committed and self.keeps_committed(commit):
            change = self.ranges.merge(done.start, done.end)
        else:
            outcome = self._outcome(commit)
            change = (
                outcome.change if outcome.offset == offset else self._outcome(commit._replace(offset=offset)).change
            )
            if change:
                self.ranges.apply(change)
        self._is_committed(offset, leader_epoch)
        return self._noted(change)

    def _is_committed(self, offset: int, leader_epoch: int) -> None:
        self.is_text_foreign = False
        self.committed, self.committed_epoch, self.is_committed_known = offset, leader_epoch, True
        if offset < self.stored_committed:
            self.stored_committed = offset  # lower after a rewind, which leaves no range

    def _outcome(self, commit: PartitionCommit) -> CommitOutcome:
        planned = self._planned
        if planned is None or planned[0] is not commit:
            planned = self._planned = commit, self._compute_outcome(commit)
            self._planned_ranges = None
        return planned[1]

    def _compute_outcome(self, commit: PartitionCommit) -> CommitOutcome:
        if commit.done is not None and self.keeps_committed(commit):
            return CommitOutcome(self.committed, self.ranges.merging(commit.done))
        committed = self.committed if self.committed >= 0 else None
        if commit.done is not None:
            return after_individual_commit(committed, self.ranges, commit.offset, commit.done)
        if commit.offset < 0:  # brokers accept a negative offset and then report that nothing is committed
            return CommitOutcome(None, RangeChange((), tuple(self.ranges)))
        return after_plain_commit(committed, self.ranges, commit.offset)

    # A transaction

    def in_transaction(self, commit: PartitionCommit, producer: tuple[int, int]) -> tuple[int, OffsetRanges]:
        """Return the offset and the ranges that a transaction has to commit (commits/README.md rule 17)."""
        known_offset = self.last_committed
        if commit.done is None:
            return (commit.offset, OffsetRanges()) if commit.offset < known_offset else self.shown(commit.offset)
        done = self.ranges.union(commit.done)
        if self.transaction is not None and self.transaction.producer == producer:
            done.merge_all(self.transaction.done)
        return done.absorb(max(known_offset, commit.offset))[0], done

    def committed_in_transaction(self, commit: PartitionCommit, producer: tuple[int, int]) -> None:
        done = OffsetRanges() if commit.done is None else commit.done
        if self.transaction is not None and self.transaction.producer == producer:
            done = done.union(self.transaction.done)
        self.transaction = OpenTransaction(producer, done)
        self.forget_committed()

    def next_to_open(self, producer_id: int, now: float) -> ErrorCode:
        """Return NONE if the open transaction is the producer's own, else the error (commits/README.md rule 18)."""
        if self.transaction is not None:
            is_own = self.transaction.producer[0] == producer_id
            return ErrorCode.NONE if is_own else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.unseen_since is None:
            self.unseen_since = now
        has_timed_out = now - self.unseen_since >= UNSEEN_MAX_S
        return ErrorCode.ILLEGAL_GENERATION if has_timed_out else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # The broker's committed offset

    def learn_committed(self, offset: int, leader_epoch: int, done: Iterable[tuple[int, int]] = ()) -> RangeChange:
        """Return the change to store (commits/README.md rule 15). `done`: ranges in the broker's metadata."""
        self.transaction = self.unseen_since = None
        done = self._own_text(done, is_read=True)
        known_offset = self.last_committed
        is_rewound = offset < 0 or offset < known_offset
        change = RangeChange((), self.ranges.clear() if is_rewound else self.ranges.drop_below(offset))
        self.committed, self.committed_epoch, self.is_committed_known = (
            max(offset, NOTHING_COMMITTED),
            leader_epoch,
            True,
        )
        self.stored_committed = min(self.stored_committed, self.committed)
        above = [(max(start, self.committed), end) for start, end in done if end > self.committed]
        change = _combined(change, self.ranges.merge_all(above))
        if self.records is None:
            return self._noted(change)
        self._planned = self._planned_ranges = self.kept_bounds = None
        if is_rewound:
            return self.delete_records()
        self.records.recount(self.ranges)
        return self.store_all() if self.unsure or self.records.lacks(self.ranges, above) else NO_CHANGE

    def _own_text(self, done: Iterable[tuple[int, int]], *, is_read: bool = False) -> OffsetRanges:
        """Return the ranges of the broker's text, unless it is still the one of a deleted topic."""
        text = OffsetRanges(done)
        if not self.is_text_foreign:
            return text
        if is_read and self._foreign_text is None:
            self._foreign_text = text
        return OffsetRanges() if self._foreign_text is None or self._foreign_text == text else text

    def forget_committed(self) -> None:
        if self.is_committed_known:
            self.stored_committed = max(self.stored_committed, self.committed)
        self.is_committed_known, self.kept_bounds = False, None

    def topic_is(self, topic_id: bytes) -> RangeChange:
        """Drop the ranges of a deleted topic with the same name (commits/README.md rule 16)."""
        if topic_id == ZERO_UUID or topic_id == self.topic_id:
            return NO_CHANGE
        is_other, self.topic_id = self.topic_id != ZERO_UUID, topic_id
        if not is_other:
            return NO_CHANGE
        self.transaction = None
        self.is_text_foreign, self._foreign_text = self.has_text, None
        self.is_committed_known, self.committed, self.stored_committed = False, NOTHING_COMMITTED, NOTHING_COMMITTED
        dropped = RangeChange((), self.ranges.clear())
        return self._noted(dropped if self.records is None else self.records.drop_for_other_topic())

    def shown(self, offset: int, done: Iterable[tuple[int, int]] = ()) -> tuple[int, OffsetRanges]:
        """Return the offset, moved over the ranges that touch it, and the ranges to show.

        `done`: ranges in the broker's metadata. After a rewind, the ranges of this proxy are left out.
        """
        known_offset = self.last_committed
        done = self._own_text(done)
        is_rewound = offset < 0 or offset < known_offset
        ranges = OffsetRanges(done) if is_rewound else self.ranges.union(OffsetRanges(done))
        return (offset, ranges) if offset < 0 else (ranges.absorb(offset)[0], ranges)

    def ended(self) -> RangeChange:
        self.is_committed_known, self.committed, self.stored_committed = False, NOTHING_COMMITTED, NOTHING_COMMITTED
        dropped = RangeChange((), self.ranges.clear())
        return self._noted(dropped if self.records is None else self.delete_records())

    # The metadata of a commit (commits/README.md rules 26 to 33)

    def plan_text(self, commit: PartitionCommit, room: int) -> TextPlan | None:
        """`room`: characters for ranges. None if all ranges are in the topic."""
        if self.records is None:
            return None
        if commit.done is None and (commit.offset < 0 or commit.offset < self.committed):
            return TextPlan(rewinds=self.records.exist or bool(self.unsure))
        change, ranges_after = self._outcome(commit).change, self.ranges
        if change:
            ranges_after = self.ranges.copy()
            ranges_after.apply(change)
        self._planned_ranges = ranges_after
        return self.records.plan(self.ranges, ranges_after, change, room)

    def plan_kept(self, commit: PartitionCommit, room: int, ranges_max: int) -> TextPlan | None:
        """Plan the commonest commit in one pass: a range above the offset that stays, and room for all in the text.

        None for all others.
        """
        done = commit.done
        if done is None or self.records is None or self.records.stored or commit.offset != self.committed:
            return None
        if not self.keeps_committed(commit):
            return None
        ranges_after = self.ranges.copy()
        change = ranges_after.merge(done.start, done.end)
        text = fitting(ranges_after, room)
        if text is None or len(ranges_after) > ranges_max:
            return None
        self._planned, self._planned_ranges = (commit, CommitOutcome(self.committed, change)), ranges_after
        return TextPlan(text)

    def bounds_in_text(self, topic_id: bytes) -> TextBounds | None:
        """Return the bounds of the ranges if the broker's metadata holds all of them, and the topic only its topic id.

        None also if the committed offset or what is stored is unknown, or the topic is another one.
        """
        records = self.records
        if records is None or not records.is_bound or records.stored or not self.is_settled(topic_id):
            return None
        self.kept_bounds = self.ranges.starts, self.ranges.ends
        return self.kept_bounds

    def is_settled(self, topic_id: bytes) -> bool:
        """Return True if the committed offset is known, and all ranges are stored and belong to this topic."""
        return self.is_committed_known and not self.unsure and self.topic_id == topic_id != ZERO_UUID

    def merge_text(self, low: int, high: int, start: int, end: int, leader_epoch: int) -> None:
        """Apply an accepted commit that was planned with `kept_bounds` (`OffsetRanges.replace`).

        Later ones only change these bounds, and `committed_epoch` if theirs is another one.
        """
        self.ranges.replace(low, high, start, end)
        self._planned = self._planned_ranges = None
        self.is_text_foreign, self.committed_epoch = False, leader_epoch
        if self.committed < self.stored_committed:
            self.stored_committed = self.committed  # as `_is_committed` does, which every commit would call

    def after_text(self, plan: TextPlan, change: RangeChange) -> TopicChange:
        """Return the records to append after a commit that changed the ranges."""
        records = self.records
        assert records is not None  # noqa: S101  # it made the plan
        if records.is_bound and not records.stored and not plan.stores:
            return NOTHING
        records.follow(change)
        topic = records.records_to_append(plan, self.ranges, self.committed, self.unsure)
        if topic.change.put or topic.binding:
            self.stored_committed = max(self.stored_committed, self.committed)
        return topic

    def store_all(self) -> RangeChange:
        """Return the change after which the topic has all ranges."""
        self.kept_bounds = None
        if self.records is None:
            return NO_CHANGE
        change = self.records.store_all(self.ranges, self.unsure, is_foreign=self.is_text_foreign)
        if change.put:
            self.stored_committed = max(self.stored_committed, self.last_committed)
        return change

    def delete_records(self) -> RangeChange:
        """Return the tombstones of all records. The ranges stay until the commit is accepted."""
        self.kept_bounds = None
        return NO_CHANGE if self.records is None else self.records.delete_all(self.unsure)

    # Storing

    def not_stored(self, change: RangeChange, binding: OffsetSpan | None = None) -> None:
        self.kept_bounds = None
        self.unsure.update(change.put, change.removed, () if binding is None else (binding,))
        if self.records is not None:
            self.records.revert_failed(change, binding, self.ranges)

    def repeat_unsure(self) -> RangeChange:
        """Return the change to store before the committed offset advances.

        Otherwise a later owner would treat dropped ranges as finished.
        """
        if self.records is not None:
            return self.store_all() if self.unsure else NO_CHANGE
        is_dropped = any(span.end > self.committed and not self._is_done(span) for span in self.unsure)
        return self._noted(NO_CHANGE) if is_dropped else NO_CHANGE

    def _is_done(self, span: OffsetSpan) -> bool:
        stored = self.ranges.range_at(span.start)
        return stored is not None and stored.end >= span.end

    def _noted(self, change: RangeChange) -> RangeChange:
        self._planned = self._planned_ranges = self.kept_bounds = None
        if self.records is not None:
            return change
        if change.put:
            self.stored_committed = max(self.stored_committed, self.committed)
        if not self.unsure:
            return change
        unsure, self.unsure = self.unsure, set()
        present = {span for span in unsure if self.ranges.range_at(span.start) == span}
        put = {*change.put, *present}
        removed = {*change.removed, *(unsure - present)} - put
        return RangeChange(tuple(sorted(put)), tuple(sorted(removed)))


def _combined(first: RangeChange, second: RangeChange) -> RangeChange:
    put = {*second.put} | ({*first.put} - {*second.removed})
    removed = ({*first.removed} | {*second.removed}) - put
    return RangeChange(tuple(sorted(put)), tuple(sorted(removed)))
