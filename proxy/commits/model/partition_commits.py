"""What is known of one partition of one group, and what a commit does to it (commits/README.md rules 7 to 9, 14, 15).

Theory of operation. The *mark* is what the broker has as committed offset, as far as is known; the ranges are done
offsets above it. A commit is first planned (which offset is to be committed in place of the member's), the broker is
asked, and what it accepted is applied: memory changes at once, and what changed of the records is given to be stored.
Where storing fails it is not known which of these records are in the topic; whatever is stored next says so again of
each of them, and until then a commit that says nothing new must not be called stored. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.offsets.partition_commits import CommitOutcome, after_individual_commit, after_plain_commit
from proxy.offsets.ranges import NO_CHANGE, OffsetRanges, OffsetSpan, RangeChange
from proxy.wire.errors import ErrorCode
from proxy.wire.values import ZERO_UUID

NOTHING_COMMITTED = -1
"""The committed offset where there is none, as OffsetFetch has it."""
UNSEEN_MAX_S = 5.0
"""A transaction of which this owner does not know what was committed is waited for so long, then to be aborted."""


class PartitionCommit(NamedTuple):
    """What a member commits of one partition."""

    offset: int
    done: OffsetRanges | None = None
    """Of an individual commit; None: a plain one."""


class CommitPlan(NamedTuple):
    """What becomes of a commit that the broker accepts."""

    offset: int
    """To be committed in place of the member's."""
    moves: bool
    """The mark will be another one: no other commit of the partition may be on its way meanwhile."""
    ranges: int
    """So many are stored then."""


class OpenTransaction(NamedTuple):
    """What a producer has committed in a transaction that may be open."""

    producer: tuple[int, int]
    """Its id and epoch."""
    done: OffsetRanges


@dataclass(slots=True)
class PartitionCommits:
    """Owned by one proxy at a time. `mark` counts only while `is_mark_known`."""

    ranges: OffsetRanges = field(default_factory=OffsetRanges)
    mark: int = NOTHING_COMMITTED
    mark_epoch: int = -1
    """The leader epoch that the mark was committed with."""
    is_mark_known: bool = False
    stored_mark: int = NOTHING_COMMITTED
    """The highest that a record of these ranges was written with; a broker that says less was rewound."""
    topic_id: bytes = ZERO_UUID
    """Of the topic that the offsets belong to, where it is known."""
    unsure: set[OffsetSpan] = field(default_factory=set)
    """Ranges whose record may be in the topic or not: an append about them failed."""
    transaction: OpenTransaction | None = None
    """The last one that committed here, until the broker says that none is open."""
    unseen_since: float | None = None
    """When the broker was first heard to have one open of which nothing is known here: another proxy saw it begin."""
    _planned: tuple[PartitionCommit, CommitOutcome] | None = field(default=None, compare=False)
    """The last commit that was planned, while nothing has changed: it is asked about several times on its way."""

    @property
    def offsets_open(self) -> int:
        """Offsets that are not done between the mark, as far as it is known, and the last range."""
        mark = max(self.mark if self.is_mark_known else self.stored_mark, 0)
        end = self.ranges.end
        return sum(span.end - span.start for span in self.ranges.gaps(mark, end)) if end > mark else 0

    # A commit

    def plan(self, commit: PartitionCommit) -> CommitPlan:
        """What a commit comes to; the mark must be known."""
        done = commit.done
        if done is not None and self.leaves_mark(commit):
            return CommitPlan(self.mark, False, self.ranges.count_merged(done.start, done.end))
        mark, change = self._outcome(commit)
        offset = commit.offset if mark is None else mark
        return CommitPlan(offset, offset != self.mark, len(self.ranges) + len(change.put) - len(change.removed))

    def leaves_mark(self, commit: PartitionCommit) -> bool:
        """Whether it says one range, and that lies above the mark, as all that is known: nearly all commits are such.

        Then the mark is committed again, and the range is merged once that is accepted: nothing is to be worked out.
        """
        mark, done = self.mark, commit.done
        if done is None or len(done) != 1:
            return False
        return commit.offset <= mark < done.start and mark < self.ranges.start

    def accepted(self, commit: PartitionCommit, offset: int, leader_epoch: int) -> RangeChange:
        """The broker has committed the offset that was planned; gives what is to be stored, changed in memory."""
        done = commit.done
        if done is not None and offset == self.mark and self.leaves_mark(commit):
            change = self.ranges.merge(done.start, done.end)
        else:
            outcome = self._outcome(commit)
            change = outcome.change if outcome.mark == offset else self._outcome(commit._replace(offset=offset)).change
            if change:
                self.ranges.apply(change)
        self.mark, self.mark_epoch, self.is_mark_known = offset, leader_epoch, True
        self.stored_mark = min(self.stored_mark, offset)  # after a rewind no range is left that was stored with more
        return self._noted(change)

    def _outcome(self, commit: PartitionCommit) -> CommitOutcome:
        planned = self._planned
        if planned is None or planned[0] is not commit:
            planned = self._planned = commit, self._worked_out(commit)
        return planned[1]

    def _worked_out(self, commit: PartitionCommit) -> CommitOutcome:
        mark = self.mark if self.mark >= 0 else None
        if commit.done is not None:
            return after_individual_commit(mark, self.ranges, commit.offset, commit.done)
        if commit.offset < 0:  # brokers take that, and say then that nothing is committed
            return CommitOutcome(None, RangeChange((), tuple(self.ranges)))
        return after_plain_commit(mark, self.ranges, commit.offset)

    # A transaction

    def in_transaction(self, commit: PartitionCommit, producer: tuple[int, int]) -> tuple[int, OffsetRanges]:
        """The offset and the ranges that a transaction is to commit (commits/README.md rule 17).

        What the same producer has committed in it is part of that: the coordinator keeps its last commit alone.
        """
        known = self.mark if self.is_mark_known else self.stored_mark
        if commit.done is None:
            return (commit.offset, OffsetRanges()) if commit.offset < known else self.shown(commit.offset)
        done = self.ranges.union(commit.done)
        if self.transaction is not None and self.transaction.producer == producer:
            done.merge_all(self.transaction.done)
        return done.absorb(max(known, commit.offset))[0], done

    def committed_in_transaction(self, commit: PartitionCommit, producer: tuple[int, int]) -> None:
        """The coordinator has taken it; it counts when the transaction is committed."""
        done = OffsetRanges() if commit.done is None else commit.done
        if self.transaction is not None and self.transaction.producer == producer:
            done = done.union(self.transaction.done)
        self.transaction = OpenTransaction(producer, done)
        self.mark_unknown()

    def beside_open(self, producer_id: int, now: float) -> ErrorCode:
        """What a producer's ranges are told while the broker has a transaction open; NONE: they go on, it is its own.

        Of one that is not known here nobody could say again what it has committed so far: the coordinator would forget
        that. It is waited for, and to be aborted where that does not help (commits/README.md rule 18).
        """
        if self.transaction is not None:
            is_own = self.transaction.producer[0] == producer_id
            return ErrorCode.NONE if is_own else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.unseen_since is None:
            self.unseen_since = now
        is_late = now - self.unseen_since >= UNSEEN_MAX_S
        return ErrorCode.ILLEGAL_GENERATION if is_late else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # The broker's word

    def broker_says(self, offset: int, leader_epoch: int, done: Iterable[tuple[int, int]] = ()) -> RangeChange:
        """Take in what is committed at the broker; `done`: ranges in its metadata. Gives what is to be stored.

        Moved past this proxy: ahead of what is known, ranges below it go; behind it, or nothing, all of them.
        """
        self.transaction = self.unseen_since = None
        known = self.mark if self.is_mark_known else self.stored_mark
        if offset < 0 or offset < known:
            change = RangeChange((), self.ranges.clear())
        else:
            change = RangeChange((), self.ranges.drop_below(offset))
        self.mark, self.mark_epoch, self.is_mark_known = max(offset, NOTHING_COMMITTED), leader_epoch, True
        self.stored_mark = min(self.stored_mark, self.mark)
        above = [(max(start, self.mark), end) for start, end in done if end > self.mark]
        return self._noted(_in_turn(change, self.ranges.merge_all(above)))

    def mark_unknown(self) -> None:
        """What the broker has may be something else by now."""
        if self.is_mark_known:
            self.stored_mark = max(self.stored_mark, self.mark)
        self.is_mark_known = False

    def topic_is(self, topic_id: bytes) -> RangeChange:
        """The topic has this id: offsets of another one of the same name mean nothing (commits/README.md rule 16)."""
        if topic_id == ZERO_UUID or topic_id == self.topic_id:
            return NO_CHANGE
        is_other, self.topic_id = self.topic_id != ZERO_UUID, topic_id
        if not is_other:
            return NO_CHANGE
        self.is_mark_known, self.mark, self.stored_mark = False, NOTHING_COMMITTED, NOTHING_COMMITTED
        return self._noted(RangeChange((), self.ranges.clear()))

    def shown(self, offset: int, done: Iterable[tuple[int, int]] = ()) -> tuple[int, OffsetRanges]:
        """What a broker's committed offset comes to: moved over what touches it, and the ranges behind it.

        `done`: ranges in the broker's metadata. Nothing of what is known is said where the broker was rewound.
        """
        known = self.mark if self.is_mark_known else self.stored_mark
        is_rewound = offset < 0 or offset < known
        ranges = OffsetRanges(done) if is_rewound else self.ranges.union(OffsetRanges(done))
        return (offset, ranges) if offset < 0 else (ranges.absorb(offset)[0], ranges)

    def ended(self) -> RangeChange:
        """Nothing is committed any more: everything goes."""
        self.is_mark_known, self.mark, self.stored_mark = False, NOTHING_COMMITTED, NOTHING_COMMITTED
        return self._noted(RangeChange((), self.ranges.clear()))

    # Storing

    def not_stored(self, change: RangeChange) -> None:
        """An append with this change failed; parts of it may be in the topic."""
        self.unsure.update(change.put, change.removed)

    def said_again(self) -> RangeChange:
        """What a rewind has dropped and may still be in the topic: to be stored before the mark moves on.

        A later owner that finds these ranges behind a mark that has come so far again takes them for done.
        """
        is_dropped = any(span.end > self.mark and not self._is_done(span) for span in self.unsure)
        return self._noted(NO_CHANGE) if is_dropped else NO_CHANGE

    def _is_done(self, span: OffsetSpan) -> bool:
        found = self.ranges.range_at(span.start)
        return found is not None and found.end >= span.end

    def _noted(self, change: RangeChange) -> RangeChange:
        """The same, with what is to be said again because it is not known whether it is in the topic."""
        self._planned = None
        if change.put:
            self.stored_mark = max(self.stored_mark, self.mark)
        if not self.unsure:
            return change
        unsure, self.unsure = self.unsure, set()
        held = {span for span in unsure if self.ranges.range_at(span.start) == span}
        put = {*change.put, *held}
        removed = {*change.removed, *(unsure - held)} - put
        return RangeChange(tuple(sorted(put)), tuple(sorted(removed)))


def _in_turn(first: RangeChange, second: RangeChange) -> RangeChange:
    """Two changes, one after the other, as one."""
    put = {*second.put} | ({*first.put} - {*second.removed})
    removed = ({*first.removed} | {*second.removed}) - put
    return RangeChange(tuple(sorted(put)), tuple(sorted(removed)))
