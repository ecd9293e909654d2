"""A share partition of a group with key order, redelivery delay or dead letters (sharegroups/README.md rule 73).

The class is chosen by the settings of the group (`class_for`), so that every other group has the plain
`SharePartition`. Changed settings convert a share partition that is loaded; its locks and pending changes stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from kafka_share_proxy.sharegroups.model import dead_letters
from kafka_share_proxy.sharegroups.model.acknowledging import RELEASE
from kafka_share_proxy.sharegroups.model.acquiring import NOTHING, Acquisition, PartitionSettings, ReadRecords
from kafka_share_proxy.sharegroups.model.key_order import BlockedKey, KeyOrder
from kafka_share_proxy.sharegroups.model.offset_runs import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    BLOCKED,
    DELAYED,
    EXHAUSTED,
    REJECTED,
    SETTLED,
    OffsetRun,
    Transition,
)
from kafka_share_proxy.sharegroups.model.ordered_acquiring import OrderedAcquirer, block, spans
from kafka_share_proxy.sharegroups.model.partition import AcknowledgementBatch, Refusal, SharePartition, Wait
from kafka_share_proxy.sharegroups.model.queue_settings import NO_QUEUE, QueueSettings
from kafka_share_proxy.sharegroups.model.redelivery import DelayedRuns, NamedDelays, delay_s, named_for
from kafka_share_proxy.sharegroups.model.renewal import RenewalBound
from kafka_share_proxy.sharegroups.model.settings import NOTHING_ACQUIRED
from kafka_share_proxy.sharegroups.model.snapshot import (
    ARCHIVING,
    TAGGED_BATCH_BYTES,
    BatchTags,
    ShareSnapshot,
)
from kafka_share_proxy.wire.records.order_keys import NO_KEYS

_PLAIN_STATES = {BLOCKED: AVAILABLE, DELAYED: AVAILABLE, REJECTED: ARCHIVED, EXHAUSTED: ARCHIVED}
"""State that a plain share partition has instead."""
_STORED_STATES = {DELAYED: AVAILABLE, REJECTED: ARCHIVING, EXHAUSTED: ARCHIVING}
"""Stored state of batches that have tagged fields."""


class QueuePartition(SharePartition):
    """All state of one (group, topic, partition) of a queue."""

    batch_bytes = TAGGED_BATCH_BYTES
    delivers_control_batches = False
    queue: QueueSettings = NO_QUEUE
    delayed: DelayedRuns
    """Runs that wait, of all share partitions of the coordinator."""
    on_dead_letters: Callable[[], None] = staticmethod(lambda: None)
    """Called when records begin to wait for their dead letters."""

    order: KeyOrder | None = None
    """None without key order."""
    _settled: list[tuple[int, int]] | None = None
    """Ranges that the change in progress settles, whose keys are freed together."""

    @classmethod
    def of(cls, plain: SharePartition, queue: QueueSettings, delayed: DelayedRuns) -> QueuePartition:
        """Return a queue with the state of `plain`, which must not be used afterwards. A queue gets the settings."""
        if isinstance(plain, QueuePartition):
            partition = plain
        else:
            partition = cls(plain.start_offset, plain.state_epoch, locks=plain.index, key=plain.key)
            _take_over(partition, plain)
        partition.queue, partition.delayed = queue, delayed
        if queue.is_ordered and partition.order is None:
            partition._begin_order()
        elif partition.order is not None and not queue.is_ordered:
            partition._end_order()
        if queue.dead_letters is None:
            dead_letters.give_up(partition)
            partition.advance()
        return partition

    def plain(self) -> SharePartition:
        if self.order is not None:
            self._end_order()
        plain = SharePartition(self.start_offset, self.state_epoch, locks=self.index, key=self.key)
        _take_over(plain, self)
        for run in list(plain.runs):
            if run.state in _PLAIN_STATES:
                plain.free(run, _PLAIN_STATES[run.state])
            run.target = _PLAIN_STATES.get(run.target, run.target)
            self.delayed.forget(run)
        plain.advance()
        return plain

    # Key order

    def _begin_order(self) -> None:
        """Know no key: those of all unsettled offsets are read before anything else is acquired."""
        self.order = KeyOrder(self.start_offset)
        self._count_locks(self.order)

    def _end_order(self) -> None:
        self.order = None
        for run in [run for run in self.runs if run.state == BLOCKED]:
            super().free(run, AVAILABLE)

    def forget_keys(self) -> None:
        if self.order is not None:
            self._end_order()
            self._begin_order()

    def _count_locks(self, order: KeyOrder) -> None:
        order.locked = sum(run.last - run.first + 1 for run in self.runs if run.state == ACQUIRED)

    def next_fetch_offset(self) -> int:
        """See Window. With key order it is at most the first offset whose key is not known."""
        free = super().next_fetch_offset()
        return free if self.order is None else min(free, max(self.order.known_to, self.start_offset))

    def acquirable_from(self, settings: PartitionSettings) -> int | None:
        """See SharePartition. With key order a blocked window grows up to `share.ordering.scan.records`."""
        if self.order is None:
            return super().acquirable_from(settings)
        offset = self.next_fetch_offset()
        may_acquire = self.order.locked < settings.max_record_locks and (
            offset < self.order.known_to or self.order.known_to <= self._scan_to(self.order)
        )
        return offset if may_acquire else None

    def room(self, max_record_locks: int) -> int:
        return super().room(max_record_locks) if self.order is None else max_record_locks - self.order.locked

    @property
    def needs_keys(self) -> bool:  # type: ignore[override]
        return self.order is not None

    def kept_from(self) -> int:
        """See SharePartition. Blocked records are read again when their key is free."""
        return self.next_fetch_offset() if self.order is None else self.start_offset

    def _scan_to(self, order: KeyOrder) -> int:
        """Return the last offset that may be tracked, so that any resulting state can be stored.

        Each unsettled offset may become a separate batch. Settled ones never need more batches than they have.
        """
        saved = max(0, order.settled_from(self.start_offset) - len(self.runs))
        return self.start_offset + min(self.queue.scan_records, self.offsets_max + saved) - 1

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
        """See SharePartition. With key order `read` must have the keys."""
        if self.order is None:
            return super().acquire(member_id, read, max_records, batch_size, record_limit, settings, now)
        if settings.max_record_locks == NOTHING_ACQUIRED:
            return NOTHING
        self.order.known_to = max(self.order.known_to, self.start_offset)
        return OrderedAcquirer(
            *(self, self.index, member_id, read, batch_size, record_limit, settings, now),
            order=self.order,
            keys=read.keys or NO_KEYS,
            scan_to=self._scan_to(self.order),
        ).acquire(max_records)

    def blocked(self) -> list[BlockedKey]:
        return [] if self.order is None else self.order.hottest()

    def blocked_records(self) -> int:
        return 0 if self.order is None else self.order.blocked

    def _order_freed(self, order: KeyOrder, run: OffsetRun, state: int) -> None:
        """Block freed records that are not the first of their key, and free those after settled ones."""
        if state & SETTLED and self._settled is not None:
            self._settled.append((run.first, run.last))
        elif state & SETTLED:
            self._unblock(order.settle([(run.first, run.last)]))
        elif state == AVAILABLE and order.blocked:
            block(self, spans(filter(order.is_blocked, range(run.first, run.last + 1))))

    def _unblock(self, offsets: Iterable[int]) -> None:
        freed: list[int] = []
        for offset in sorted(offsets):
            index = self.index_from(offset)
            run = self.runs[index] if index < len(self.runs) else None
            if run is None or run.first > offset or run.state != BLOCKED:
                continue
            if run.first != offset or run.last != offset:
                run = self.isolate(offset, offset)
            run.state = AVAILABLE  # a blocked run has neither a lock nor a due time
            freed.append(offset)
        if freed:
            self.free_from = min(self.free_from, freed[0])
            self.join_all(freed)

    def move_log_start(self, offset: int) -> None:
        super().move_log_start(offset)
        if self.order is not None:
            self.order.known_to = max(self.order.known_to, self.start_offset)
            self._unblock(self.order.settle_below(self.start_offset))
            self._count_locks(self.order)

    def move_log_end(self, offset: int) -> None:
        super().move_log_end(offset)
        if self.order is not None:
            self.order.drop_from(offset)
            self._count_locks(self.order)

    # Dead letters

    def rejected_state(self) -> int:
        return ARCHIVED if self.queue.dead_letters is None else REJECTED

    def decide_dead_letters(self, records_max: int) -> dead_letters.DeadLetterWrite | None:
        """Choose records whose dead letters are to be written. None if none waits."""
        return dead_letters.choose(self, records_max)

    def dead_letters_waiting(self) -> int:
        return dead_letters.count_waiting(self)

    def apply(self, transition: Transition) -> None:
        settled: list[tuple[int, int]] = []
        self._settled = settled
        super().apply(transition)
        self._settled = None
        if self.order is not None and settled:
            self._unblock(self.order.settle(settled))
        if any(state >= dead_letters.WAITING_MIN for _, _, state, _ in transition.changes):
            self.on_dead_letters()

    # Redelivery delay

    def freed_state(self, count: int, delivery_count_limit: int, *, is_failed: bool = True) -> int:
        state = super().freed_state(count, delivery_count_limit)
        if state == ARCHIVED and self.queue.dead_letters is not None:
            return EXHAUSTED
        return DELAYED if state == AVAILABLE and is_failed and self.queue.redelivery is not None else state

    def decide_acknowledge(
        self,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        renew_allowed: bool,
        settings: PartitionSettings,
        now: float,
        bound: RenewalBound | None = None,
    ) -> Transition | Refusal:
        decided = super().decide_acknowledge(member_id, batches, renew_allowed, settings, now, bound)
        if isinstance(decided, Transition):
            self._delay([run for run in decided.runs if run.target == DELAYED], now)
        return decided

    def name_delays(self, decided: Transition, delays: NamedDelays, now: float) -> None:
        """Let the records that a decided change releases wait for the delays that the member names."""
        for run, acknowledge_type in zip(decided.runs, decided.acknowledge_types, strict=True):
            delay = named_for(delays, run.first)
            if acknowledge_type != RELEASE or delay is None or run.target not in (AVAILABLE, DELAYED):
                continue
            self.delayed.forget(run)
            run.target = DELAYED if delay else AVAILABLE
            if delay:
                self.delayed.add(run, now + delay)
        decided.changes = tuple([(run.first, run.last, run.target, run.count) for run in decided.runs])

    def expire(self, expired: Iterable[OffsetRun], settings: PartitionSettings, now: float) -> Transition | None:
        transition = super().expire(expired, settings, now)
        if transition is not None:
            freed = (self.run_at(first) for first, _, state, _ in transition.changes if state == DELAYED)
            self._delay([run for run in freed if run is not None], now)
        return transition

    def revert(self, transition: Transition, now: float, settings: PartitionSettings) -> None:
        if isinstance(transition, dead_letters.DeadLetterWrite):
            self._settle(transition)
            dead_letters.undo(transition, self)
            return
        for run in transition.runs:
            self.delayed.forget(run)
        super().revert(transition, now, settings)
        if any(run.state >= dead_letters.WAITING_MIN for run in transition.runs):
            self.on_dead_letters()
        self._delay([run for run in transition.runs if run.state == DELAYED and run.partition is self], now)

    def _delay(self, runs: Iterable[OffsetRun], now: float) -> None:
        redelivery = self.queue.redelivery
        if redelivery is not None:
            for run in runs:
                self.delayed.add(run, now + delay_s(redelivery, run.count, self.delayed.chance(run)))

    def delay_again(self, due_s: Mapping[int, int]) -> None:
        """Let the free runs wait that have a stored due time, by first offset, in the future."""
        for first, stored_s in due_s.items():
            run, due = self.run_at(first), self.delayed.loaded(stored_s)
            if run is not None and run.state == AVAILABLE and due is not None:
                self.free(run, DELAYED)
                self.delayed.add(run, due)

    def redeliver(self, runs: Iterable[OffsetRun]) -> None:
        """Make runs available that are due."""
        for run in runs:
            if run.state == DELAYED and self.run_at(run.first) is run:
                self.free(run, AVAILABLE)
                self.join(run.first)

    def waiting(self) -> list[Wait]:
        return [
            Wait(run.first, run.last, run.count, self.delayed.due(run)) for run in self.runs if run.state == DELAYED
        ]

    def delays_of(self, transition: Transition) -> list[Wait]:
        """Return the records of a change that wait, whether or not it was applied."""
        freed = (self.run_at(first) for first, _, state, _ in transition.changes if state == DELAYED)
        return [Wait(run.first, run.last, run.count, self.delayed.due(run)) for run in freed if run is not None]

    def free(self, run: OffsetRun, state: int) -> None:
        order = self.order
        if order is not None and run.state == ACQUIRED:
            order.locked -= run.last - run.first + 1
        if state != DELAYED:
            self.delayed.forget(run)
        super().free(run, state)
        if order is not None:
            self._order_freed(order, run, state)

    def free_to_targets(self, runs: Iterable[OffsetRun]) -> None:
        """See Window. Settled records of a group with key order, which may be many ranges, take fewer calls."""
        order, settled = self.order, self._settled
        if order is None or settled is None or self.delayed:
            super().free_to_targets(runs)
            return
        for run in runs:
            if run.target & SETTLED and run.state == ACQUIRED:
                order.locked -= run.last - run.first + 1
                super().free(run, run.target)
                settled.append((run.first, run.last))
            else:
                self.free(run, run.target)

    def remove(self, index: int) -> None:
        self.delayed.forget(self.runs[index])
        super().remove(index)

    def is_held(self) -> bool:
        """True if a member holds an offset, or one waits for its due time or its dead letter."""
        return any(run.state in (ACQUIRED, DELAYED, REJECTED, EXHAUSTED) for run in self.runs)

    # State

    def loaded_state(self, snapshot: ShareSnapshot, first: int, state: int) -> int:
        if state != ARCHIVING:
            return state
        return REJECTED if first in snapshot.rejected else EXHAUSTED

    def snapshot(self, *transitions: Transition) -> ShareSnapshot:
        if self.queue.dead_letters is None:
            plain = self._snapshot(transitions)
            if not any(state in _STORED_STATES for _, _, state, _ in plain.batches):
                return plain  # no batch has tagged fields
        with dead_letters.archived(transitions):
            return self._snapshot(transitions, BatchTags())

    def tagged(self, tags: BatchTags, run: OffsetRun, state: int) -> int:
        if state == REJECTED:
            tags.rejected.add(run.first)
        elif state == DELAYED and (due := self.delayed.due(run)) > -inf:
            tags.due_s[run.first] = self.delayed.stored_s(due)
        return _STORED_STATES.get(state, state)


def class_for(queue: QueueSettings | None) -> type[SharePartition]:
    """Return the class of share partitions of a group with these settings."""
    return SharePartition if queue is None else QueuePartition


def partition_of(partition: SharePartition, queue: QueueSettings | None, delayed: DelayedRuns) -> SharePartition:
    """Return the share partition for these settings: `partition`, or another with its state that replaces it."""
    return partition.plain() if queue is None else QueuePartition.of(partition, queue, delayed)


def is_for_named_delays(partition: SharePartition) -> bool:
    """Return True if this is a queue only because a member named a delay: its group has no queue settings."""
    return isinstance(partition, QueuePartition) and partition.queue is NO_QUEUE


def _take_over(new: SharePartition, old: SharePartition) -> None:
    """Move the window of `old` to `new`."""
    new.start_offset, new.end_offset, new.free_from = old.start_offset, old.end_offset, old.free_from
    new.runs, new.firsts = old.runs, old.firsts
    new.offsets_max, new.reports_offsets = old.offsets_max, old.reports_offsets
    for run in new.runs:
        run.partition = new
