"""Writes of decided share state changes through the journal (sharegroups/README.md rules 43, 57).

How it works: a share partition decides a change (its units are then *in transition*). This module writes it as a
snapshot of the whole share partition, and applies it when the journal has confirmed it. Each share partition is a
separate append, whose snapshot contains all changes of it that wait. For each partition of the state topic one bounded
round of appends is in flight at a time. A definite refusal reverts the changes. All of this happens here and not in the
request handler, so that it happens even if the client disconnects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafka_share_proxy.durable.interfaces import (
    RESPONSE_MAX_S,
    Journal,
    JournalRefused,
    OutsideRecords,
    TransactionalJournal,
)
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.loop.interfaces import Notes, Timers
from kafka_share_proxy.loop.promise import PROCESS, Callback, CallbackOwner, Promise, settled
from kafka_share_proxy.loop.waiting import settled_within
from kafka_share_proxy.sharegroups.audit_events import ShareAudit
from kafka_share_proxy.sharegroups.model.coordinator import Change, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetterWrite
from kafka_share_proxy.sharegroups.model.partition import SharePartition, Transition
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode, LocalProtocolError

Entry = tuple[StateKey, bytes | None]
"""Key and value of a record of share state. None deletes it."""

Outcome = dict[ShareKey, ErrorCode]
"""Result by share partition. NONE: written and applied. Any other code: refused and reverted, with the client's code.
"""

WAITING_MAX = 100_000
"""Maximum number of changes that wait for the append in flight. Further changes are refused immediately."""

ROUND_BYTES_MAX = 1 << 20
"""Maximum snapshot bytes per round. One snapshot alone may be larger."""

CHANGES_MAX = 64
"""Maximum number of changes in one snapshot, because each is compared with all runs that are being acknowledged."""

_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def client_code(store_code: ErrorCode) -> ErrorCode:
    """Return the error code sent to a client whose state could not be stored (sharegroups/README.md rule 45)."""
    if store_code in _RETRIABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if store_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return store_code
    if store_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_SERVER_ERROR


@dataclass(slots=True, eq=False)
class _WriteRequest:
    """One caller's request to write several share partitions."""

    remaining: int
    done: Promise[Outcome] = field(default_factory=Promise)
    outcome: Outcome = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _QueuedWrite:
    """One write of one share partition: a change, a first snapshot, or a deletion (neither of them)."""

    request: _WriteRequest
    key: ShareKey
    change: Transition | None = None
    created: tuple[SharePartition, int] | None = None
    """First snapshot, and the node id of the leader."""
    final: bool = False
    """True if the change already holds in memory (expired locks). It is applied even if it could not be written."""
    fenced: ErrorCode = ErrorCode.NONE
    """Set if the share partition that decided the change was replaced or deleted meanwhile: the change is dropped."""


LetterChanges = Sequence[tuple[ShareKey, DeadLetterWrite]]
"""Records to be archived, at most one write of each share partition."""


@dataclass(slots=True, eq=False)
class _LetterWrite:
    """Dead letters of one state partition, with the changes that archive their records."""

    changes: LetterChanges
    outside: Sequence[OutsideRecords]
    done: Promise[None] = field(default_factory=Promise)


@dataclass(slots=True)
class _Lane:
    """Writes to one partition of the state topic."""

    waiting: list[_QueuedWrite] = field(default_factory=list)
    appends_in_flight: int = 0
    """Number of appends of the present round that are not settled."""
    letters: _LetterWrite | None = None
    """Dead letters that wait for the end of the present round."""
    keys_in_transaction: frozenset[ShareKey] = frozenset()
    """Share partitions in the transaction in flight. Their other changes wait for its end."""


class ShareWrites:
    """Writes changes of share state in order, one round of appends at a time for each partition of the state topic."""

    def __init__(
        self,
        journal: Journal[StateKey],
        coordinator: ShareCoordinator,
        notes: Notes,
        now: Callable[[], float],
        on_outcome: Callable[[ShareKey], None],
        owner: CallbackOwner = PROCESS,
        *,
        audit: ShareAudit | None = None,
        observe_write: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        """`owner` is notified if a stored change cannot be applied; by default `PROCESS`.

        `audit` receives the outcome of deliveries. None: audit is off. `observe_write` is called with the seconds that
        each change's append took.
        """
        self._journal = journal
        self.transactions = journal if isinstance(journal, TransactionalJournal) else None
        """The journal, if it can store dead letters together with the state."""
        self._owner = owner
        self._coordinator = coordinator
        self._notes = notes
        self._now = now
        self._on_outcome = on_outcome
        """Called for each share partition whose change was applied or reverted, since records may be available."""
        self.audit = audit
        self._observe_write = observe_write
        self._lanes = defaultdict[int, _Lane](_Lane)
        """Lanes by partition of the state topic."""
        self._changes_waiting = 0

    def write(self, changes: Sequence[Change], *, final: bool = False) -> Promise[Outcome]:
        """Write decided changes, each share partition at most once. Never fails (see `Outcome`).

        `final` changes already hold in memory. They stay if the journal refuses them.
        """
        if not changes:
            return settled({})
        request = _WriteRequest(len(changes))
        queued_writes = [_QueuedWrite(request, key, transition, final=final) for key, transition in changes]
        room = max(0, WAITING_MAX - self._changes_waiting)
        if len(queued_writes) <= room:
            self._write(queued_writes)
        else:
            self._write(queued_writes[:room])
            for queued in queued_writes[room:]:
                self._settle(queued, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return request.done

    def create(self, key: ShareKey, partition: SharePartition, node_id: int) -> Promise[Outcome]:
        """Write the first snapshot of a share partition and load it, replacing one that is loaded."""
        request = _WriteRequest(1)
        self._write([_QueuedWrite(request, key, created=(partition, node_id))])
        return request.done

    def remove(self, keys: Sequence[ShareKey]) -> Promise[Outcome]:
        """Delete the state of share partitions. They are unloaded once the deletion is durable."""
        if not keys:
            return settled({})
        request = _WriteRequest(len(keys))
        self._write([_QueuedWrite(request, key) for key in keys])
        return request.done

    def write_letters(self, changes: LetterChanges, outside: Sequence[OutsideRecords]) -> Promise[None]:
        """Write dead letters and archive their records, all or none. Fails with JournalRefused.

        All of one state partition, which has no other such write in progress. Raises LocalProtocolError without
        `transactions`.
        """
        if self.transactions is None:
            raise LocalProtocolError("dead letters without transactions")
        letter_write = _LetterWrite(changes, outside)
        lane = self._lanes[state_partition(changes[0][0].group_id)]
        lane.letters = letter_write
        self._start(lane)
        return letter_write.done

    def put(self, records: Sequence[tuple[StateKey, bytes | None]]) -> Promise[None]:
        """Write a record that is not of a share partition: a group, settings, deletions. Fails with JournalRefused."""
        return self._journal.append(records)

    def call_after(self, append: Promise[None], callback: Callback) -> None:
        """Call `callback` once the journal has confirmed or refused an append, before its waiting callers resume.

        Runs on behalf of the share state, in the order of appends, inside the journal's own call.
        """
        if append.done:
            callback()
        else:
            append.on_settled(callback, self._owner)

    def _write(self, queued_writes: Sequence[_QueuedWrite]) -> None:
        lanes: dict[int, _Lane] = {}
        for queued in queued_writes:
            number = state_partition(queued.key.group_id)
            lane = lanes[number] = self._lanes[number]
            lane.waiting.append(queued)
            self._changes_waiting += queued.change is not None
        for lane in lanes.values():
            self._start(lane)

    def _start(self, lane: _Lane) -> None:
        if lane.letters is not None and self.transactions is not None and not lane.appends_in_flight:
            self._start_letters(lane, lane.letters, self.transactions)
        while lane.waiting and not lane.appends_in_flight:
            appends = self._next_round(lane)
            if not appends:
                return  # all of them wait for the transaction in flight
            lane.appends_in_flight = len(appends)
            started_at = self._now()
            for queued_writes, records in appends:
                append = self._journal.append(records) if records else settled(None)
                self.call_after(append, partial(self._finish, lane, queued_writes, append, started_at))

    def _next_round(self, lane: _Lane) -> list[tuple[list[_QueuedWrite], list[Entry]]]:
        """Return the next round with its records: for each share partition one append, with all changes that wait."""
        if len(lane.waiting) == 1 and not lane.keys_in_transaction:  # as usual
            queued_writes, lane.waiting = lane.waiting, []
            self._changes_waiting -= queued_writes[0].change is not None
            return [(queued_writes, self._records(queued_writes))]
        by_share_partition, still_waiting = self._writable_now(lane)
        appends: list[tuple[list[_QueuedWrite], list[Entry]]] = []
        size, remaining = 0, list[_QueuedWrite]()
        for queued_writes in by_share_partition:
            if size >= ROUND_BYTES_MAX:
                remaining += queued_writes
                continue
            records = self._records(queued_writes)
            size += sum([len(value or b"") for _, value in records])
            appends.append((queued_writes, records))
            self._changes_waiting -= sum([queued.change is not None for queued in queued_writes])
        lane.waiting = remaining + still_waiting
        return appends

    def _writable_now(self, lane: _Lane) -> tuple[list[list[_QueuedWrite]], list[_QueuedWrite]]:
        """Return the queued writes that may be sent now, by share partition, and those that wait.

        A deletion or a first snapshot is a round by itself. Writes of a share partition keep their order.
        """
        by_share_partition: dict[ShareKey, list[_QueuedWrite]] = {}
        still_waiting: list[_QueuedWrite] = []
        closed_keys = set(lane.keys_in_transaction)
        for queued in lane.waiting:
            queued_writes = None if queued.key in closed_keys else by_share_partition.setdefault(queued.key, [])
            if queued_writes is None or (queued_writes and queued.change is None):
                still_waiting.append(queued)
                closed_keys.add(queued.key)
                continue
            queued_writes.append(queued)
            if queued.change is None or len(queued_writes) == CHANGES_MAX:
                closed_keys.add(queued.key)
        return list(by_share_partition.values()), still_waiting

    def _start_letters(self, lane: _Lane, letter_write: _LetterWrite, journal: TransactionalJournal[StateKey]) -> None:
        lane.letters = None
        records: list[Entry] = []
        for key, write in letter_write.changes:
            share = self._coordinator.share(key)
            if share is None or not write.is_of(share.partition):
                self._end_letters(
                    letter_write, JournalRefused(ErrorCode.FENCED_STATE_EPOCH, "the share partition changed")
                )
                return
            records.append((_state_key(key), share.partition.snapshot(write).encode()))
        lane.keys_in_transaction = frozenset(key for key, _ in letter_write.changes)
        append = journal.append_with(records, letter_write.outside)
        self.call_after(append, partial(self._finish_letters, lane, letter_write, append))

    def _finish_letters(self, lane: _Lane, letter_write: _LetterWrite, append: Promise[None]) -> None:
        lane.keys_in_transaction = frozenset()
        try:
            append.result()
        except JournalRefused as refusal:
            self._end_letters(letter_write, refusal)
        else:
            self._end_letters(letter_write, None)
        self._start(lane)

    def _end_letters(self, letter_write: _LetterWrite, refusal: JournalRefused | None) -> None:
        for key, write in letter_write.changes:
            if self._end_change(key, write, is_stored=refusal is None):
                self._on_outcome(key)
        if refusal is None:
            letter_write.done.set(None)
        else:
            letter_write.done.fail(refusal)

    def _records(self, queued_writes: Sequence[_QueuedWrite]) -> list[Entry]:
        """Return the records of queued writes of one share partition: one, or none if it no longer exists."""
        first = queued_writes[0]
        key = first.key
        if first.change is None:
            return [(_state_key(key), None if first.created is None else first.created[0].snapshot().encode())]
        changes = [queued.change for queued in queued_writes if queued.change is not None and not queued.fenced]
        share = self._coordinator.share(key) if changes else None
        return [] if share is None else [(_state_key(key), share.partition.snapshot(*changes).encode())]

    def _finish(
        self, lane: _Lane, queued_writes: Sequence[_QueuedWrite], append: Promise[None], started_at: float
    ) -> None:
        code = NO_ERROR
        self._observe_write(self._now() - started_at)
        try:
            append.result()
        except JournalRefused as refusal:
            code = client_code(refusal.code)
            self._notes("share-state-refused", code=refusal.code.name, reason=str(refusal))
        lane.appends_in_flight -= 1
        for queued in queued_writes:
            self._settle(queued, code)
        if lane.waiting or lane.letters is not None:
            self._start(lane)

    def _settle(self, queued: _QueuedWrite, code: ErrorCode) -> None:
        """Store the outcome of one share partition. The last one of a request completes its promise."""
        request, key = queued.request, queued.key
        if queued.change is not None:
            is_stored = code == NO_ERROR or queued.final
            if queued.fenced or not self._end_change(key, queued.change, is_stored=is_stored):
                code = queued.fenced or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code == NO_ERROR:
            self._replace(key, queued.created)
        request.outcome[key] = code
        request.remaining -= 1
        if not request.remaining:
            request.done.set(request.outcome)
        self._on_outcome(key)

    def _replace(self, key: ShareKey, created: tuple[SharePartition, int] | None) -> None:
        """Load a share partition after its first snapshot is stored, or unload it after its deletion."""
        if created is not None:
            self._fence(key, client_code(ErrorCode.FENCED_STATE_EPOCH))
            self._coordinator.add_share(key, *created)
        else:
            self._coordinator.remove_share(key)
            self._fence(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _fence(self, key: ShareKey, code: ErrorCode) -> None:
        """Drop the waiting changes that a replaced or deleted share partition decided, so that none reports success."""
        for queued in self._lanes[state_partition(key.group_id)].waiting:
            if queued.key == key and queued.change is not None:
                queued.fenced = queued.fenced or code

    def _end_change(self, key: ShareKey, transition: Transition, *, is_stored: bool) -> bool:
        """Apply or revert a change. Return False if its share partition no longer exists."""
        share = self._coordinator.share(key)
        if share is None:
            return False
        partition, audit, now = share.partition, self.audit, self._now()
        if is_stored:
            if audit is not None:
                audit.settling(key, partition, transition, self._coordinator.settings(key.group_id).lock_duration_s)
            partition.apply(transition)
        else:
            settings = self._coordinator.settings(key.group_id)
            partition.revert(transition, now, settings)
            if audit is not None:
                audit.reverted(key, partition, transition, settings.lock_duration_s)
        share.note_oldest(now)
        return True


async def reported_in_time(timers: Timers, written: Promise[Outcome], keys: Iterable[ShareKey]) -> Outcome:
    """Return the outcome of a write that begins now.

    COORDINATOR_NOT_AVAILABLE (15) for all share partitions if the outcome is not known in time.
    """
    if await settled_within(timers, RESPONSE_MAX_S, written):
        return written.result()
    return dict.fromkeys(keys, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _state_key(key: ShareKey) -> StateKey:
    return StateKey("partition", *key)
