"""One share partition: the state of its offsets in flight (Kafka's SharePartition; sharegroups/README.md).

How it works: a state machine without I/O. Each call passes the event and its time (`now`, monotonic seconds). A change
that must be durable before the response is returned as a `Transition`: `decide_...` marks the records, the caller
stores `snapshot(transition)`, then `apply` settles them and moves the start offset, or `revert` restores them. Marked
records can neither be acknowledged again nor acquired. Locks and deliveries in progress are never stored: a reloaded
partition delivers those records again, with the delivery count they had before.

It deliberately does more than Kafka 4.3: see sharegroups/README.md rule 63.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_share_proxy.sharegroups.model import acknowledging
from kafka_share_proxy.sharegroups.model.acknowledging import AcknowledgementBatch, Refusal, check_shape
from kafka_share_proxy.sharegroups.model.acquiring import (
    NOTHING,
    Acquirer,
    Acquisition,
    PartitionSettings,
    ReadRecords,
)
from kafka_share_proxy.sharegroups.model.key_order import BlockedKey
from kafka_share_proxy.sharegroups.model.offset_runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    BLOCKED,
    SETTLED,
    UNREAD,
    EndedDelivery,
    LockIndex,
    OffsetRun,
    Transition,
    Window,
)
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.model.settings import NOTHING_ACQUIRED
from kafka_share_proxy.sharegroups.model.snapshot import (
    ARCHIVING,
    NOTHING_COUNTED,
    BatchTags,
    ShareSnapshot,
    StateBatch,
)
from kafka_share_proxy.wire.errors import LocalProtocolError

__all__ = [
    "NOTHING",
    "AcknowledgementBatch",
    "Acquisition",
    "Lock",
    "LockIndex",
    "PartitionSettings",
    "ReadRecords",
    "Refusal",
    "SharePartition",
    "Transition",
    "WindowStatistics",
    "check_shape",
]


class WindowStatistics(NamedTuple):
    """Counts of offsets, for metrics and for `DescribeShareGroupOffsets`."""

    in_flight: int
    """Number of offsets in the window, including settled ones and holes."""
    available: int
    acquired: int
    """Number of offsets held by members, including those being acknowledged."""
    pending: int
    """Number of offsets being acknowledged, waiting for the store."""
    delivery_complete: int
    """Number of settled offsets after the start offset (sharegroups/README.md rule 52): lag = end of the log - start
    offset - this.
    """


@dataclass(frozen=True, slots=True)
class Lock:
    """An acquisition lock of a member on a range of offsets."""

    first: int
    last: int
    member_id: str
    delivery_count: int
    deadline: float
    renewals: int
    acquired_at: float


class Wait(NamedTuple):
    """Records that wait until they are delivered again."""

    first: int
    last: int
    delivery_count: int
    due: float
    """Monotonic seconds."""


class SharePartition(Window):
    """All state of one (group, topic, partition)."""

    delivers_control_batches = True
    """True as in Kafka: members acknowledge them as gaps."""

    def __init__(
        self, start_offset: int, state_epoch: int = 0, *, locks: LockIndex | None = None, key: Hashable = None
    ) -> None:
        """`locks`: the coordinator's shared index. `key`: the coordinator's name for this partition."""
        super().__init__(start_offset)
        self.state_epoch = state_epoch
        self.index = locks if locks is not None else LockIndex()
        self.key = key
        self.reports_offsets = True
        """True if DescribeShareGroupOffsets returns the offsets (sharegroups/README.md rule 52)."""

    @classmethod
    def from_snapshot(
        cls, snapshot: ShareSnapshot, *, locks: LockIndex | None = None, key: Hashable = None
    ) -> SharePartition:
        """Build a share partition without locks from stored state (sharegroups/README.md rule 29).

        Raises ValueError for impossible batches: reversed, overlapping, below the start.
        """
        partition = cls(snapshot.start_offset, snapshot.state_epoch, locks=locks, key=key)
        partition.reports_offsets = snapshot.delivery_complete_count != NOTHING_COUNTED
        next_offset = snapshot.start_offset
        for first, last, state, count in snapshot.batches:
            if first < next_offset or last < first or state not in (AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED):
                raise ValueError(f"state batch {first}-{last} in state {state} after offset {next_offset - 1}")
            if first > next_offset:
                partition.insert(OffsetRun(partition, next_offset, first - 1, UNREAD, 0))
            partition.insert(OffsetRun(partition, first, last, partition.loaded_state(snapshot, first, state), count))
            next_offset = last + 1
        partition.end_offset = next_offset - 1
        partition.advance()
        return partition

    def loaded_state(self, snapshot: ShareSnapshot, first: int, state: int) -> int:  # noqa: ARG002 - a queue needs it
        """Return the state of a stored batch. Without dead letters one to be archived is archived."""
        return ARCHIVED if state == ARCHIVING else state

    def plain(self) -> SharePartition:
        """Return a share partition with this state for a group without queue settings. Only that one may be used."""
        return self

    # Reading.

    def acquirable_from(self, settings: PartitionSettings) -> int | None:
        """Return the offset of the next read. None if no offset is free and the window may not grow
        (sharegroups/README.md rule 28).
        """
        return (
            None
            if settings.max_record_locks == NOTHING_ACQUIRED
            or ((offset := self.next_fetch_offset()) > self.end_offset and self.room(settings.max_record_locks) <= 0)
            else offset
        )

    def acquire(
        self,
        member_id: str,
        read: ReadRecords,
        max_records: int,
        batch_size: int,
        record_limit: bool,
        settings: PartitionSettings,
        now: float,
    ) -> Acquisition:
        """Lock records for a member (sharegroups/README.md rules 28-38).

        `record_limit`: ShareAcquireMode 1, else batch_optimized.
        """
        return (
            NOTHING
            if settings.max_record_locks == NOTHING_ACQUIRED
            else Acquirer(self, self.index, member_id, read, batch_size, record_limit, settings, now).acquire(
                max_records
            )
        )

    # Acknowledging and releasing.

    def decide_acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        renew_allowed: bool,
        settings: PartitionSettings,
        now: float,
        bound: RenewalBound | None = None,
    ) -> Transition | Refusal:
        """Check (first, last, types) batches by sharegroups/README.md rules 40 and 41.

        `renew_allowed`: version >= 2 and IsRenewAck. Renewals take effect immediately, also those before a refused
        batch. All other changes wait for apply(). A transition without changes needs neither storing nor apply().
        """
        refusal = check_shape(batches, renew_allowed)
        if refusal is not None:
            return refusal
        return acknowledging.decide(self, self.index, member_id, batches, settings, now, bound)

    def decide_release(self, member_id: str, settings: PartitionSettings) -> Transition | None:
        """Release the locks of a member whose session ended (sharegroups/README.md rule 18). None if it held none."""
        return self._release([run for run in self._held() if run.owner == member_id], settings)

    def decide_release_all(self, settings: PartitionSettings) -> Transition | None:
        """Release all locks because the leader moved (sharegroups/README.md rule 23). None if there were none."""
        return self._release(self._held(), settings)

    def _held(self) -> list[OffsetRun]:
        return [run for run in self.runs if run.state == ACQUIRED and run.pending is None]

    def _release(self, runs: list[OffsetRun], settings: PartitionSettings) -> Transition | None:
        for run in runs:
            run.target = self.freed_state(run.count, settings.delivery_count_limit, is_failed=False)
        return acknowledging.plan(runs) if runs else None

    def expire(self, expired: Iterable[OffsetRun], settings: PartitionSettings, now: float) -> Transition | None:  # noqa: ARG002 - a queue needs it
        """Free the locks that LockIndex.expired(now) returned for this partition. None if nothing changed.

        The transition only serves to store the change (sharegroups/README.md rule 35): call apply() whether or not that
        succeeds. Records being acknowledged are left to apply() and revert().
        """
        changes, ended_deliveries = [], []
        for run in sorted(expired, key=lambda run: run.first):
            if run.state == ACQUIRED and run.pending is None:
                ended_deliveries.append(EndedDelivery.of(run))
                self.free(run, self.freed_state(run.count, settings.delivery_count_limit))
                changes.append((run.first, run.last, run.state, run.count))
        for change in changes:
            self.join(change[0])
        if not changes:
            return None
        self.reports_offsets = True
        transition = Transition((), tuple(changes))
        transition.ended_deliveries = ended_deliveries
        return transition

    def apply(self, transition: Transition) -> None:
        """Settle the records of a durable transition, and move the start offset."""
        self._settle(transition)
        self.reports_offsets = True
        settled_runs = [run for run in transition.runs if run.pending is transition and run.partition is self]
        self.free_to_targets(settled_runs)
        self.advance()
        self.join_all([run.first for run in settled_runs if run.first >= self.start_offset])

    def revert(self, transition: Transition, now: float, settings: PartitionSettings) -> None:
        """Restore the records of a refused transition with their old locks (sharegroups/README.md rule 43).

        If a lock has expired in the meantime, its records become free, or archived if their deliveries are used up.
        """
        self._settle(transition)
        ended_deliveries = []
        for run in transition.runs:
            if run.pending is not transition or run.partition is not self:
                continue  # the log lost these records meanwhile, or all state was replaced
            run.pending = None
            if run.deadline() <= now:
                ended_deliveries.append(EndedDelivery.of(run))
                self.free(run, self.freed_state(run.count, settings.delivery_count_limit))
        transition.ended_deliveries = ended_deliveries
        self.advance()

    def _settle(self, transition: Transition) -> None:
        if transition.settled:
            raise LocalProtocolError(f"{transition} was applied or reverted before")
        transition.settled = True

    # The log.

    def move_log_start(self, offset: int) -> None:
        """Set the start of the log (sharegroups/README.md rules 51, 63). Ignored up to the start offset."""
        if offset <= self.start_offset:
            return
        while self.runs and self.runs[0].last < offset:
            self.remove(0)
        if self.runs and self.runs[0].first < offset:
            self.explode(self.runs[0])
            self.runs[0].first = self.firsts[0] = offset
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset - 1)
        self.advance()

    def move_log_end(self, offset: int) -> None:
        """Set the end of the log, which ends before `offset`. Drops tracked records beyond it."""
        if offset > self.end_offset:
            return
        while self.runs and (self.runs[-1].first >= offset or self.runs[-1].state == UNREAD):
            self.remove(len(self.runs) - 1)
        if self.runs and self.runs[-1].last >= offset:
            self.explode(self.runs[-1])
            self.runs[-1].last = offset - 1
        for run in self.runs:
            if run.exploded_batch is not None and run.exploded_batch.last >= offset:
                run.exploded_batch.last = offset - 1
        self.start_offset = min(self.start_offset, offset)
        self.end_offset = self.runs[-1].last if self.runs else self.start_offset - 1
        self.free_from = min(self.free_from, self.end_offset + 1)

    # State.

    def snapshot(self, *transitions: Transition) -> ShareSnapshot:
        """Return the value to store: the confirmed state with the given transitions applied.

        A held record is stored as before its present delivery. Records without a completed delivery are left out.
        """
        return self._snapshot(transitions)

    def _snapshot(self, transitions: Sequence[Transition], tags: BatchTags | None = None) -> ShareSnapshot:
        start_offset = self.start_offset
        is_leading = True
        settled_count = 0
        batches: list[StateBatch] = []
        for run in self.runs:
            state, count = run.state, run.count
            if state == ACQUIRED:
                if run.pending is not None and run.pending in transitions:
                    state = run.target
                else:
                    state, count = AVAILABLE, count - 1
            if state == BLOCKED:
                state = AVAILABLE
            if is_leading and not state & SETTLED:
                is_leading = False
                start_offset = max(start_offset, run.first)
            if is_leading or state == UNREAD or (count == 0 and state == AVAILABLE):
                continue
            if state & SETTLED:
                settled_count += run.last - run.first + 1
            if tags is not None:
                state = self.tagged(tags, run, state)
            is_next = batches and batches[-1][1] + 1 == run.first and batches[-1][2:] == (state, count)
            if is_next and (tags is None or tags.merge(batches[-1][0], run.first)):
                batches[-1] = (batches[-1][0], run.last, state, count)
            else:
                batches.append((run.first, run.last, state, count))
        if is_leading:
            start_offset = self.end_offset + 1
        if not (self.reports_offsets or transitions):
            settled_count = NOTHING_COUNTED
        fields = () if tags is None else tags.fields()
        return ShareSnapshot(start_offset, self.state_epoch, settled_count, tuple(batches), *fields)

    def tagged(self, tags: BatchTags, run: OffsetRun, state: int) -> int:  # noqa: ARG002 - a queue needs them
        """Return the stored state of a run in this state, and add the run's tagged fields."""
        return state

    def is_held(self) -> bool:
        """True if a member holds an offset. Those being stored count."""
        return any(run.state == ACQUIRED for run in self.runs)

    def is_held_by(self, member_id: str) -> bool:
        """Return True if this member holds an offset. Those being stored count."""
        return any(run.owner == member_id for run in self.runs if run.state == ACQUIRED)

    def locks(self) -> list[Lock]:
        return [
            Lock(run.first, run.last, run.owner or "", run.count, run.deadline(), run.renewals, run.acquired_at)
            for run in self.runs
            if run.state == ACQUIRED
        ]

    needs_keys = False
    """True if an acquire needs the keys of the records, because the group has key order."""

    def forget_keys(self) -> None:
        """Learn the keys of unsettled records again, because the isolation level has changed."""

    def kept_from(self) -> int:
        """Return the offset from which records may be acquired again soon, so that they stay in the cache."""
        return self.next_fetch_offset()

    def blocked(self) -> Sequence[BlockedKey]:
        """Return the keys for which most records wait, most first."""
        return ()

    def blocked_records(self) -> int:
        """Return the number of records that wait for an earlier one with the same key."""
        return 0

    def waiting(self) -> Sequence[Wait]:
        """Return the records that wait for their due time, ascending."""
        return ()

    def dead_letters_waiting(self) -> int:
        """Return the number of records whose dead letters are not written yet."""
        return 0

    def statistics(self) -> WindowStatistics:
        """Count the offsets in the window, in time linear in its runs."""
        available = acquired = pending = complete = 0
        for run in self.runs:
            size = run.last - run.first + 1
            if run.state == AVAILABLE:
                available += size
            elif run.state == ACQUIRED:
                acquired += size
                pending += size if run.pending is not None else 0
            elif run.state & SETTLED:
                complete += size
        return WindowStatistics(self.end_offset - self.start_offset + 1, available, acquired, pending, complete)
