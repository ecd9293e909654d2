"""Decided changes on their way through the journal.

Theory of operation. A change is decided by a share partition (its units are *in transition*), written here as a
snapshot of the whole share partition, and applied when the journal has confirmed it; only then is anybody told. Each
share partition is an append of its own, which no other one can make fail. For each partition of the state topic a
bounded round of them is under way at a time: the snapshots are made when it starts, of the confirmed state plus the
changes it carries; what comes meanwhile waits for the next. A definite refusal reverts the change. All of this happens
here and not in the handler that asked, so it happens whether or not the asking client is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from proxy.durable.interfaces import ANSWER_MAX_S, Journal, JournalRefused
from proxy.durable.state_partitions import state_partition
from proxy.loop.interfaces import Notes, Timers
from proxy.loop.promise import PROCESS, Callback, CallbackOwner, Promise, settled
from proxy.loop.waiting import settled_by
from proxy.sharegroups.audit_events import ShareAudit
from proxy.sharegroups.model.coordinator import Change, Share, ShareCoordinator, ShareKey
from proxy.sharegroups.model.partition import SharePartition, Transition
from proxy.sharegroups.state_records import StateKey
from proxy.wire.errors import ErrorCode

Entry = tuple[StateKey, bytes | None]
"""Key and value of a record of share state; None deletes it."""

Outcome = dict[ShareKey, ErrorCode]
"""NONE = written and applied; anything else = refused and reverted, with the code for the client."""

WAITING_MAX = 100_000
"""Changes that may wait for the append in flight; one more is refused at once."""

ROUND_BYTES_MAX = 1 << 20
"""Snapshots that are made at a time, for each partition of the state topic; one more may be larger alone."""

_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def client_code(store_code: ErrorCode) -> ErrorCode:
    """What a client is told when its state could not be stored (sharegroups/README.md rule 45)."""
    if store_code in _RETRIABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if store_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return store_code
    if store_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(slots=True, eq=False)
class _Asked:
    """What one caller wants written."""

    left: int
    """Share partitions whose outcome is open."""
    done: Promise[Outcome] = field(default_factory=Promise)
    found: Outcome = field(default_factory=dict)

    def tell(self, key: ShareKey, code: ErrorCode) -> None:
        """One more is known; the caller hears of it with the last."""
        self.found[key] = code
        self.left -= 1
        if not self.left:
            self.done.set(self.found)


@dataclass(slots=True, eq=False)
class _Order:
    """What is to be written of one share partition."""

    asked: _Asked
    key: ShareKey
    change: Transition | None = None
    created: tuple[SharePartition, int] | None = None
    """A first snapshot, and the node that leads it. Without a change or this it is a deletion."""
    final: bool = False
    """The change holds in memory already (expired locks): applied whether or not it could be written."""
    fenced: ErrorCode = ErrorCode.NONE
    """Set when what decided the change was replaced or deleted while it waited: it is dropped."""


@dataclass(slots=True)
class _Lane:
    """What is to be written to one partition of the state topic."""

    waiting: list[_Order] = field(default_factory=list)
    under_way: int = 0
    """Appends of the present round that are not settled."""


class ShareWrites:
    """Writes changes of share state, in order, one append at a time for each partition of the state topic."""

    def __init__(
        self,
        journal: Journal[StateKey],
        coordinator: ShareCoordinator,
        notes: Notes,
        now: Callable[[], float],
        settled_at: Callable[[ShareKey], None],
        owner: CallbackOwner = PROCESS,
    ) -> None:
        """`owner`: who is told when something that was stored cannot be applied; else `PROCESS`."""
        self._journal = journal
        self._owner = owner
        self._coordinator = coordinator
        self._notes = notes
        self._now = now
        self._settled_at = settled_at
        """Called for each share partition whose change was applied or reverted: records may be available."""
        self.audit: ShareAudit | None = None
        """Told what became of deliveries, where audit is on."""
        self.took: Callable[[float], None] = lambda _seconds: None
        """Told of each change how long its append took."""
        self._lanes: dict[int, _Lane] = {}
        self._changes_waiting = 0

    def write(self, changes: Sequence[Change], *, final: bool = False) -> Promise[Outcome]:
        """Write decided changes, each share partition at most once; never fails, see Outcome.

        `final` changes hold already: they stay when the journal refuses them.
        """
        if not changes:
            return settled({})
        asked = _Asked(len(changes))
        orders = [_Order(asked, key, transition, final=final) for key, transition in changes]
        room = max(0, WAITING_MAX - self._changes_waiting)
        self._write(orders[:room])
        for order in orders[room:]:
            self._settle(order, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return asked.done

    def create(self, key: ShareKey, partition: SharePartition, node_id: int) -> Promise[Outcome]:
        """Write the first snapshot of a share partition and load it, in place of one that is loaded."""
        asked = _Asked(1)
        self._write([_Order(asked, key, created=(partition, node_id))])
        return asked.done

    def remove(self, keys: Sequence[ShareKey]) -> Promise[Outcome]:
        """Delete the state of share partitions; they are unloaded once that is durable."""
        if not keys:
            return settled({})
        asked = _Asked(len(keys))
        self._write([_Order(asked, key) for key in keys])
        return asked.done

    def put(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        """Write what is no share partition: a group, its settings, deletions. Fails with JournalRefused."""
        return self._journal.append(records)

    def after(self, append: Promise[None], then: Callback) -> None:
        """Call once the journal has confirmed or refused an append, before anybody who asked for it goes on.

        On behalf of the share state, in the order of appends: inside the journal's own call.
        """
        if append.done:
            then()
        else:
            append.on_settled(then, self._owner)

    def _write(self, orders: Sequence[_Order]) -> None:
        lanes: dict[int, _Lane] = {}
        for order in orders:
            number = state_partition(order.key.group_id)
            lane = lanes[number] = self._lanes.setdefault(number, _Lane())
            lane.waiting.append(order)
            self._changes_waiting += order.change is not None
        for lane in lanes.values():
            self._start(lane)

    def _start(self, lane: _Lane) -> None:
        while lane.waiting and not lane.under_way:
            taken = self._take(lane)
            lane.under_way = len(taken)
            begun = self._now()
            for order, records in taken:
                append = self._journal.append(records) if records else settled(None)
                self.after(append, partial(self._finish, lane, order, append, begun))

    def _take(self, lane: _Lane) -> list[tuple[_Order, list[Entry]]]:
        """The next round, with what is to be stored: a share partition's second change waits for the one after."""
        taken, kept = list[tuple[_Order, list[Entry]]](), list[_Order]()
        keys: set[ShareKey] = set()
        size = 0
        for index, order in enumerate(lane.waiting):
            if size >= ROUND_BYTES_MAX:
                kept += lane.waiting[index:]
                break
            if order.key in keys:
                kept.append(order)
                continue
            keys.add(order.key)
            records = self._records(order)
            size += sum(len(value or b"") for _, value in records)
            taken.append((order, records))
            self._changes_waiting -= order.change is not None
        lane.waiting = kept
        return taken

    def _records(self, order: _Order) -> list[Entry]:
        """What is stored of it: one record, or none where there is nothing to be said any more."""
        if order.created is not None:
            return [(_state_key(order.key), order.created[0].snapshot().encode())]
        if order.change is None:
            return [(_state_key(order.key), None)]
        share = None if order.fenced else self._coordinator.share(order.key)
        return [] if share is None else [(_state_key(order.key), share.partition.snapshot(order.change).encode())]

    def _finish(self, lane: _Lane, order: _Order, append: Promise[None], begun: float) -> None:
        code = ErrorCode.NONE
        self.took(self._now() - begun)
        try:
            append.result()
        except JournalRefused as refusal:
            code = client_code(refusal.code)
            self._notes("share-state-refused", code=refusal.code.name, reason=str(refusal))
        lane.under_way -= 1
        self._settle(order, code)
        self._start(lane)

    def _settle(self, order: _Order, code: ErrorCode) -> None:
        """Apply or revert it, then tell."""
        order.asked.tell(order.key, self._outcome(order, code))
        self._settled_at(order.key)

    def _outcome(self, order: _Order, code: ErrorCode) -> ErrorCode:
        key = order.key
        if order.change is not None:
            share = None if order.fenced else self._coordinator.share(key)
            if share is None:
                return order.fenced or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._end(key, share, order.change, keep=code == ErrorCode.NONE or order.final)
        elif code != ErrorCode.NONE:
            return code
        elif order.created is not None:
            self._coordinator.add_share(key, *order.created)
            self._fence(key, client_code(ErrorCode.FENCED_STATE_EPOCH))
        else:
            self._coordinator.remove_share(key)
            self._fence(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return code

    def _fence(self, key: ShareKey, code: ErrorCode) -> None:
        """Drop what waits and was decided by the share partition that is no more: nobody is told that it was done."""
        for order in self._lanes[state_partition(key.group_id)].waiting:
            if order.key == key and order.change is not None:
                order.fenced = order.fenced or code

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
                audit.reverted(key, share.partition, transition, settings.lock_duration_s)
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


def _state_key(key: ShareKey) -> StateKey:
    return StateKey("partition", key.group_id, key.topic_id, key.partition)
