"""Decided changes on their way through the journal (decisions 20, 21).

Theory of operation. A change is decided by a share partition (its units are *in transition*), written here as a
snapshot of the whole share partition, and applied when the journal has confirmed it; only then is anybody told. One
append is in flight at a time for each partition of the state topic: its snapshots are made when it starts, of the
confirmed state plus the changes it carries; what comes meanwhile waits for the next. A definite refusal reverts the
changes. All of this happens here and not in the handler that asked, so it happens whether or not the asking client is
still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from proxy.apis.audit import Audit
from proxy.apis.ports import Journal, JournalRefused, Notes, StateKey, Timers
from proxy.apis.promise import Promise, settled
from proxy.apis.share_state import state_partition
from proxy.apis.waiting import settled_by
from proxy.errors import ErrorCode
from proxy.share.coordinator import Change, Share, ShareCoordinator, ShareKey
from proxy.share.partition import SharePartition, Transition

Outcome = dict[ShareKey, ErrorCode]
"""NONE = written and applied; anything else = refused and reverted, with the code for the client."""

WAITING_MAX = 100_000
"""Changes that may wait for the append in flight; one more is refused at once."""

ANSWER_MAX_S = 12.0
"""Whoever waits longer for a write is told to come again, while the append goes on: its outcome may be unknown for as
long as the leader of the state partition is away. Clients wait for 30 s."""

_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def client_code(store_code: ErrorCode) -> ErrorCode:
    """What a client is told when its state could not be stored (share-groups.md 6.4)."""
    if store_code in _RETRIABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if store_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return store_code
    if store_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(slots=True, eq=False)
class _Order:
    """What one caller wants written."""

    changes: Sequence[Change]
    done: Promise[Outcome] = field(default_factory=Promise)
    created: tuple[ShareKey, SharePartition, int] | None = None
    removed: Sequence[ShareKey] = ()
    final: bool = False
    """The changes hold in memory already (expired locks): applied whether or not they could be written."""
    fenced: dict[ShareKey, ErrorCode] = field(default_factory=dict)
    """Changes that were dropped: what decided them was replaced or deleted while they waited."""

    @property
    def keys(self) -> set[ShareKey]:
        """The share partitions it writes."""
        created = () if self.created is None else (self.created[0],)
        return {key for key, _ in self.changes}.union(created, self.removed)


@dataclass(slots=True)
class _Lane:
    """What is to be written to one partition of the state topic."""

    waiting: list[_Order] = field(default_factory=list)
    in_flight: bool = False


class ShareWrites:
    """Writes changes of share state, in order, one append at a time for each partition of the state topic."""

    def __init__(
        self,
        journal: Journal,
        coordinator: ShareCoordinator,
        notes: Notes,
        now: Callable[[], float],
        settled_at: Callable[[ShareKey], None],
    ) -> None:
        self._journal = journal
        self._coordinator = coordinator
        self._notes = notes
        self._now = now
        self._settled_at = settled_at
        """Called for each share partition whose change was applied or reverted: records may be available."""
        self.audit: Audit | None = None
        """Told what became of deliveries, where audit is on."""
        self._lanes: dict[int, _Lane] = {}
        self._changes_waiting = 0

    def write(self, changes: Sequence[Change], *, final: bool = False) -> Promise[Outcome]:
        """Write decided changes, each share partition at most once; never fails, see Outcome.

        `final` changes hold already: they stay when the journal refuses them.
        """
        if not changes:
            return settled({})
        by_lane: dict[int, list[Change]] = {}
        for change in changes:
            by_lane.setdefault(state_partition(change[0].group_id), []).append(change)
        return _joined([self._write(lane, part, final) for lane, part in by_lane.items()])

    def _write(self, lane: int, changes: Sequence[Change], final: bool) -> Promise[Outcome]:
        order = _Order(changes, final=final)
        if self._changes_waiting + len(changes) > WAITING_MAX:
            self._settle([order], ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._enqueue(lane, order)
        return order.done

    def create(self, key: ShareKey, partition: SharePartition, node_id: int) -> Promise[Outcome]:
        """Write the first snapshot of a share partition and load it, in place of one that is loaded."""
        order = _Order((), created=(key, partition, node_id))
        self._enqueue(state_partition(key.group_id), order)
        return order.done

    def remove(self, keys: Sequence[ShareKey]) -> Promise[Outcome]:
        """Delete the state of share partitions of one group; they are unloaded once that is durable."""
        order = _Order((), removed=tuple(keys))
        if not keys:
            return settled({})
        self._enqueue(state_partition(keys[0].group_id), order)
        return order.done

    def put(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        """Write what is no share partition: a group, its settings, deletions. Fails with JournalRefused."""
        return self._journal.append(records)

    def _enqueue(self, number: int, order: _Order) -> None:
        lane = self._lanes.setdefault(number, _Lane())
        lane.waiting.append(order)
        self._changes_waiting += len(order.changes)
        self._start(lane)

    def _start(self, lane: _Lane) -> None:
        while lane.waiting and not lane.in_flight:
            orders = self._take(lane)
            lane.in_flight = True
            records = self._records(orders)
            append = self._journal.append(records) if records else settled(None)
            append.on_settled(partial(self._finish, lane, orders, append))

    def _take(self, lane: _Lane) -> list[_Order]:
        """The orders for the next append: a share partition's second change waits for the one after."""
        taken, kept = list[_Order](), list[_Order]()
        keys: set[ShareKey] = set()
        for order in lane.waiting:
            wanted = order.keys
            (taken if wanted.isdisjoint(keys) else kept).append(order)
            keys |= wanted
        lane.waiting = kept
        self._changes_waiting -= sum(len(order.changes) for order in taken)
        return taken

    def _records(self, orders: Sequence[_Order]) -> list[tuple[StateKey, bytes | None]]:
        records: list[tuple[StateKey, bytes | None]] = []
        for order in orders:
            if order.created is not None:
                key, partition, _ = order.created
                records.append((_state_key(key), partition.snapshot().encode()))
            records += [(_state_key(key), None) for key in order.removed]
            for key, transition in order.changes:
                share = self._coordinator.share(key)
                if share is not None:
                    records.append((_state_key(key), share.partition.snapshot(transition).encode()))
        return records

    def _finish(self, lane: _Lane, orders: Sequence[_Order], append: Promise[None]) -> None:
        code = ErrorCode.NONE
        try:
            append.result()
        except JournalRefused as refusal:
            code = client_code(refusal.code)
            self._notes("share-state-refused", code=refusal.code.name, reason=str(refusal))
        lane.in_flight = False
        self._settle(orders, code)
        self._start(lane)

    def _settle(self, orders: Sequence[_Order], code: ErrorCode) -> None:
        """Apply or revert all of it first: a waiter that goes on sees one state."""
        outcomes = [self._outcome(order, code) for order in orders]
        for order, outcome in zip(orders, outcomes, strict=True):
            order.done.set(outcome)
        for outcome in outcomes:
            for key in outcome:
                self._settled_at(key)

    def _outcome(self, order: _Order, code: ErrorCode) -> Outcome:
        outcome: Outcome = dict(order.fenced)
        if order.created is not None:
            key, partition, node_id = order.created
            if code == ErrorCode.NONE:
                self._coordinator.add_share(key, partition, node_id)
                self._fence(key, client_code(ErrorCode.FENCED_STATE_EPOCH))
            outcome[key] = code
        for key in order.removed:
            if code == ErrorCode.NONE:
                self._coordinator.remove_share(key)
                self._fence(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            outcome[key] = code
        for key, transition in order.changes:
            share = self._coordinator.share(key)
            if share is None:
                outcome[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            self._end(key, share, transition, keep=code == ErrorCode.NONE or order.final)
            outcome[key] = code
        return outcome

    def _fence(self, key: ShareKey, code: ErrorCode) -> None:
        """Drop what waits and was decided by the share partition that is no more: nobody is told that it was done."""
        for order in self._lanes[state_partition(key.group_id)].waiting:
            kept = [change for change in order.changes if change[0] != key]
            if len(kept) < len(order.changes):
                self._changes_waiting -= len(order.changes) - len(kept)
                order.changes = kept
                order.fenced[key] = code

    def _end(self, key: ShareKey, share: Share, transition: Transition, *, keep: bool) -> None:
        """Apply or revert one change, and say what became of deliveries."""
        settings, now, audit = self._coordinator.settings(key.group_id), self._now(), self.audit
        if keep:
            if audit is not None:
                audit.settling(key, share.partition, transition, settings.lock_duration_s)
            share.partition.apply(transition)
        else:
            share.partition.revert(transition, now, settings)
            if audit is not None:
                audit.reverted(key, transition, settings.lock_duration_s)
        share.note_oldest(now)


async def told_in_time(
    timers: Timers, written: Promise[Outcome], keys: Iterable[ShareKey], begun: float | None = None
) -> Outcome:
    """What became of a write of these share partitions that was `begun` then, or just now.

    15 for all of them where that is not known in time.
    """
    if await settled_by(timers, (timers.now() if begun is None else begun) + ANSWER_MAX_S, written):
        return written.result()
    return dict.fromkeys(keys, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _joined(parts: Sequence[Promise[Outcome]]) -> Promise[Outcome]:
    """All outcomes in one, once the last of them is there."""
    if len(parts) == 1:
        return parts[0]
    whole: Promise[Outcome] = Promise()

    def settle() -> None:
        if all(part.done for part in parts):
            whole.set({key: code for part in parts for key, code in part.result().items()})

    for part in parts:
        part.on_settled(settle)
    return whole


def _state_key(key: ShareKey) -> StateKey:
    return StateKey("partition", key.group_id, key.topic_id, key.partition)
