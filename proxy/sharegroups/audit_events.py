"""What happens to deliveries of share groups, as audit events: one for a range of offsets, never one for a record.

Whoever hands out or settles records says so here (audit/README.md). Settled means durable: an event comes when the
change was applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from proxy.audit.events import PROXY, Place
from proxy.audit.fetches import GivenRecords, Reader
from proxy.audit.stream import Audit
from proxy.loop.interfaces import Timers
from proxy.loop.promise import Promise
from proxy.reading.far_records import Records
from proxy.sharegroups.model.acknowledging import ACCEPT, GAP, REJECT, RELEASE
from proxy.sharegroups.model.coordinator import Share, ShareCoordinator, ShareKey
from proxy.sharegroups.model.offset_runs import GivenBack, OffsetRun
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
SUMS_MAX = 10_000
"""Share partitions that are summed up; past it they are added to the loads at once."""


class _ShareSums:
    """What happened to one share partition since it was added to the loads."""

    __slots__ = ("bytes", "hold_ms", "place", "rows")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rows = self.bytes = 0
        self.hold_ms = 0.0


_Ending: TypeAlias = tuple[_ShareSums, int, float, float, int]
"""Sums and start offset of a share partition, how long its locks last, and when deliveries of it end: seconds of the
loop's clock, and milliseconds since 1970."""


class ShareAudit:
    """One per process, where audit is on."""

    def __init__(self, audit: Audit, timers: Timers, coordinator: ShareCoordinator) -> None:
        self._audit = audit
        self._timers = timers
        self._coordinator = coordinator
        self._renewed: dict[ShareKey, None] = {}
        self._sums: dict[ShareKey, _ShareSums] = {}
        audit.on_interval.append(self._mark_renewed)
        audit.on_sums.append(self._add_sums)

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
        sums = self._sums.get(key) or self._begin(key)
        sums.bytes += size
        lock_ms, left = round(lock_s * 1000), size
        for first, last, count in ranges:
            values = (first, last, count, left, lock_ms, PROXY)
            self._audit.offer("acquire", sums.place, key.group_id, member_id, values)
            sums.rows += last - first + 1
            left = 0

    def settling(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """A change is about to be applied: call it before `SharePartition.apply`, which forgets who held what."""
        ending = self._ending(key, partition, lock_s)
        for given in transition.given_back:
            self._settled(key, given, LOCK_TIMEOUT, ending)
        kinds = transition.kinds
        for index, run in enumerate(transition.runs):
            if run.pending is transition and run.partition is partition:
                outcome = OUTCOMES[kinds[index]] if kinds else SESSION_CLOSE
                self._settled(key, run, FORCED_RELEASE if transition.is_forced else outcome, ending)

    def reverted(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """A change was refused by the store: what its locks had ended meanwhile is free again."""
        ending = self._ending(key, partition, lock_s)
        for given in transition.given_back:
            self._settled(key, given, LOCK_TIMEOUT, ending)

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

    def _settled(self, key: ShareKey, ended: GivenBack | OffsetRun, outcome: str, ending: _Ending) -> None:
        sums, start_offset, lock_s, now, wall_ms = ending
        held_s = max(now - ended.acquired_at, 0.0)
        renew_ms = round(max(held_s - lock_s, 0.0) * 1000) if ended.renewals else 0
        held = (ended.first, ended.last, ended.count, wall_ms - round(held_s * 1000))
        values = (*held, outcome, ended.renewals, renew_ms, start_offset, PROXY)
        self._audit.offer("settle", sums.place, key.group_id, ended.owner, values)
        sums.hold_ms += held_s * 1000 * (ended.last - ended.first + 1)

    def _ending(self, key: ShareKey, partition: SharePartition, lock_s: float) -> _Ending:
        sums = self._sums.get(key) or self._begin(key)
        return sums, partition.start_offset, lock_s, self._timers.now(), self._timers.wall_ms()

    def _begin(self, key: ShareKey) -> _ShareSums:
        if len(self._sums) >= SUMS_MAX:
            self._add_sums()
        sums = self._sums[key] = _ShareSums(_place(key))
        return sums

    def _add_sums(self) -> None:
        """To the loads, which are of partitions: they are told next."""
        found, self._sums = self._sums, {}
        for sums in found.values():
            load = self._audit.loads.of(sums.place)
            load.rows += sums.rows
            load.bytes += sums.bytes
            load.hold_ms += sums.hold_ms

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
