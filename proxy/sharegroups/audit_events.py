"""What happens to deliveries of share groups, as audit events: one for a range of offsets, never one for a record.

Whoever hands out or settles records says so here (audit/README.md). Settled means durable: an event comes when the
change was applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from proxy.audit.events import PROXY, Place
from proxy.audit.fetches import GivenRecords, Reader
from proxy.audit.stream import Audit
from proxy.loop.interfaces import Timers
from proxy.loop.promise import Promise
from proxy.reading.far_records import Records
from proxy.sharegroups.model.acknowledging import ACCEPT, GAP, REJECT, RELEASE
from proxy.sharegroups.model.coordinator import Share, ShareCoordinator, ShareKey
from proxy.sharegroups.model.offset_runs import GivenBack
from proxy.sharegroups.model.partition import Lock, SharePartition, Transition
from proxy.wire.batches import BatchTable
from proxy.wire.errors import ErrorCode

Request = Literal["AlterShareGroupOffsets", "DeleteShareGroupOffsets"]

OUTCOMES = {GAP: "gap", ACCEPT: "accept", RELEASE: "release", REJECT: "reject"}
LOCK_TIMEOUT, SESSION_CLOSE, FORCED_RELEASE = "lock_timeout", "session_close", "forced_release"

RENEWED_MAX = 100_000
"""Share partitions with renewed locks that are remembered; of those beyond only settles tell."""
MARKS_MAX = 10_000
"""Marks of renewed locks in one interval; share partitions that do not fit come first in the next."""


class ShareAudit:
    """One per process, where audit is on."""

    def __init__(self, audit: Audit, timers: Timers, coordinator: ShareCoordinator) -> None:
        self._audit = audit
        self._timers = timers
        self._coordinator = coordinator
        self._renewed: dict[ShareKey, None] = {}
        audit.on_interval.append(self._mark_renewed)

    def read(self, group_id: str, place: Place, batches: BatchTable, data: Records) -> None:
        """A Fetch has brought these whole batches; their bytes may be at another proxy."""
        self._audit.fetches.add(Reader("share", place, group_id), GivenRecords.all_of(batches))
        if isinstance(data, memoryview):
            self._audit.keys.read(place, batches, data)

    def read_here(self, place: Place, batches: BatchTable, data: memoryview) -> None:
        """The owner of a group, another proxy, had these batches read here, where their bytes stay."""
        self._audit.keys.read(place, batches, data)

    def acquired(
        self, key: ShareKey, member_id: str, ranges: Iterable[tuple[int, int, int]], size: int, lock_s: float
    ) -> None:
        """Ranges (first, last, delivery count) of one partition were given to a member; `size`: bytes of the answer."""
        place = _place(key)
        load = self._audit.loads.of(place)
        load.bytes += size
        lock_ms, left = round(lock_s * 1000), size
        for first, last, count in ranges:
            self._audit.offer("acquire", place, key.group_id, member_id, (first, last, count, left, lock_ms, PROXY))
            load.rows += last - first + 1
            left = 0

    def settling(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """A change is about to be applied: call it before `SharePartition.apply`, which forgets who held what."""
        now = self._timers.now()
        for given in transition.given_back:
            self._settled(key, partition, given, LOCK_TIMEOUT, lock_s, now)
        kinds = transition.kinds
        for index, run in enumerate(transition.runs):
            if run.pending is transition and run.partition is partition:
                outcome = OUTCOMES[kinds[index]] if kinds else SESSION_CLOSE
                outcome = FORCED_RELEASE if transition.is_forced else outcome
                self._settled(key, partition, GivenBack.of(run), outcome, lock_s, now)

    def reverted(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """A change was refused by the store: what its locks had ended meanwhile is free again."""
        for given in transition.given_back:
            self._settled(key, partition, given, LOCK_TIMEOUT, lock_s, self._timers.now())

    def renewed(self, key: ShareKey) -> None:
        """A member renewed locks of this share partition."""
        if len(self._renewed) < RENEWED_MAX:
            self._renewed[key] = None

    def forced_release(self, key: ShareKey, member_id: str, transition: Transition) -> None:
        """An administrator takes back what a member holds."""
        records = sum(run.last - run.first + 1 for run in transition.runs)
        self._audit.offer("forced_release", _place(key), key.group_id, member_id, (records, len(transition.runs)))

    def replacing(self, request: Request, begins: Mapping[ShareKey, int | None]) -> Replacing:
        """The state of share partitions is about to be replaced: where they begin then; None: they have none."""
        shares = {key: self._coordinator.share(key) for key in begins}
        before = {key: None if share is None else share.partition.start_offset for key, share in shares.items()}
        return Replacing(self._audit, request, begins, before)

    def _settled(
        self, key: ShareKey, partition: SharePartition, given: GivenBack, outcome: str, lock_s: float, now: float
    ) -> None:
        held_s = max(now - given.acquired_at, 0.0)
        renew_ms = round(max(held_s - lock_s, 0.0) * 1000) if given.renewals else 0
        held = (given.first, given.last, given.attempt, self._wall_ms(held_s))
        values = (*held, outcome, given.renewals, renew_ms, partition.start_offset, PROXY)
        place = _place(key)
        self._audit.offer("settle", place, key.group_id, given.owner, values)
        self._audit.loads.of(place).hold_ms += held_s * 1000 * (given.last - given.first + 1)

    def _mark_renewed(self) -> None:
        """Say of every renewed lock that it is still held."""
        left = MARKS_MAX
        for key in list(self._renewed):
            del self._renewed[key]
            share = self._coordinator.share(key)
            locks = [] if share is None else [lock for lock in share.partition.locks() if lock.renewals]
            if share is None or not locks:
                continue
            if left > 0:
                self._mark(key, share, locks)
                left -= len(locks)
                self._renewed[key] = None
            else:
                self._renewed = {key: None} | self._renewed
                break

    def _mark(self, key: ShareKey, share: Share, locks: Iterable[Lock]) -> None:
        now, lock_s = self._timers.now(), self._coordinator.settings(key.group_id).lock_duration_s
        for lock in locks:
            held_s = max(now - lock.acquired_at, 0.0)
            values = (lock.first, lock.last, lock.delivery_count, self._wall_ms(held_s), lock.renewals)
            renew_ms = round(max(held_s - lock_s, 0.0) * 1000)
            place, start_offset = _place(key), share.partition.start_offset
            self._audit.offer("renew", place, key.group_id, lock.member_id, (*values, renew_ms, start_offset))

    def _wall_ms(self, ago_s: float) -> int:
        return self._timers.wall_ms() - round(ago_s * 1000)


class Replacing(NamedTuple):
    """Tells what a tool's request altered, once that is stored, whether or not the tool still waits."""

    audit: Audit
    request: Request
    begins: Mapping[ShareKey, int | None]
    before: Mapping[ShareKey, int | None]

    def follow(self, written: Promise[dict[ShareKey, ErrorCode]]) -> None:
        """What becomes of a write of some of them."""

        def told() -> None:
            for key, code in written.result().items():
                if code == ErrorCode.NONE:
                    values = (self.request, self.begins[key], self.before[key])
                    self.audit.offer("offsets_altered", _place(key), key.group_id, None, values)

        written.on_settled(told)


def _place(key: ShareKey) -> Place:
    return Place(key.topic_id, key.partition)
