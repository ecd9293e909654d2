"""Audit events of share group deliveries: one per range of offsets, never one per record (audit/README.md).

Settled means durable: the event is written when the change is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Literal, NamedTuple, TypeAlias

from kafka_share_proxy.audit.events import NOWHERE, PROXY, Place
from kafka_share_proxy.audit.fetches import GivenRecords, Reader
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.reading.far_records import Records
from kafka_share_proxy.sharegroups.model.acknowledging import ACCEPT, GAP, REJECT, RELEASE
from kafka_share_proxy.sharegroups.model.acquiring import AcquiredRange
from kafka_share_proxy.sharegroups.model.coordinator import Share, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.dead_letters import DeadLetterWrite
from kafka_share_proxy.sharegroups.model.group import Member
from kafka_share_proxy.sharegroups.model.offset_runs import REJECTED, EndedDelivery, OffsetRun
from kafka_share_proxy.sharegroups.model.partition import Lock, SharePartition, Transition
from kafka_share_proxy.sharegroups.model.queue_partition import QueuePartition
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.batches import BatchTable

Request = Literal["AlterShareGroupOffsets", "DeleteShareGroupOffsets"]

OUTCOMES = {GAP: "gap", ACCEPT: "accept", RELEASE: "release", REJECT: "reject"}
LOCK_TIMEOUT, SESSION_CLOSE, FORCED_RELEASE = "lock_timeout", "session_close", "forced_release"
REJECTED_CAUSE, EXHAUSTED_CAUSE = "reject", "delivery_limit"
"""Outcomes of dead letters."""

RENEWED_MAX = 100_000
"""Maximum number of share partitions with renewed locks to track. Beyond it, only settles report renewals."""
RENEW_EVENTS_MAX = 10_000
"""Maximum number of renew events per interval. Share partitions that do not fit are the first in the next interval."""
MEMBERS_MAX = 10_000
"""Maximum number of members that are tracked as reported. Beyond it, all are reported again."""
MEMBERS_EVERY_S = 3600.0
"""Seconds after which members are reported again, so that each day's files contain them."""
SUMS_MAX = 10_000
"""Maximum number of share partitions that are summed up. Beyond it, the sums are added to the loads immediately."""

BLOCKED_PARTITIONS_MAX = 10
"""Maximum number of share partitions with blocked keys in an interval: those with the most blocked records."""


class _ShareSums:
    """Totals of one share partition since it was last added to the loads."""

    __slots__ = ("bytes", "hold_ms", "place", "rows")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.rows = self.bytes = 0
        self.hold_ms = 0.0


_Ending: TypeAlias = tuple[_ShareSums, int, float, float, int]
"""Sums and start offset of a share partition, duration of its locks in seconds, and the time at which deliveries end:
in seconds of the loop's clock, and in milliseconds since 1970.
"""


class ShareAudit:
    """Reports share group deliveries to the audit. One per process, if audit is on."""

    def __init__(self, audit: Audit, timers: Timers, coordinator: ShareCoordinator) -> None:
        self._audit = audit
        self._timers = timers
        self._coordinator = coordinator
        self._renewed: dict[ShareKey, None] = {}
        self._sums: dict[ShareKey, _ShareSums] = {}
        self._members: dict[tuple[str, str], Member | None] = {}
        """(group, member) -> client id and host of members that acquired records. None after they were reported."""
        self._members_since = timers.now()
        audit.on_interval.append(self._report_members)
        audit.on_interval.append(self._report_renewed)
        audit.on_interval.append(self._report_blocked)
        audit.on_sums.append(self._add_sums)

    def read(self, group_id: str, place: Place, batches: BatchTable, data: Records) -> None:
        """Record that a Fetch read these whole batches. Another proxy may hold their bytes."""
        self._audit.fetches.add(Reader("share", place, group_id), GivenRecords.all_of(batches))
        if isinstance(data, memoryview):
            self._audit.keys.read(place, batches, data)

    def read_here(self, place: Place, batches: BatchTable, data: memoryview) -> None:
        """Record that another proxy, the owner of a group, read these batches here, where their bytes stay."""
        self._audit.keys.read(place, batches, data)

    def acquired(
        self, key: ShareKey, member_id: str, ranges: Iterable[AcquiredRange], size: int, lock_s: float
    ) -> None:
        """Record ranges that a member acquired. `size`: bytes of the response."""
        sums = self._sums.get(key) or self._begin(key)
        sums.bytes += size
        if (key.group_id, member_id) not in self._members:
            self._note_member(key.group_id, member_id)
        lock_ms, reported_bytes = round(lock_s * 1000), size
        for first, last, count in ranges:
            values = (first, last, count, reported_bytes, lock_ms, PROXY)
            self._audit.offer("acquire", sums.place, key.group_id, member_id, values)
            sums.rows += last - first + 1
            reported_bytes = 0

    def settling(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """Record a change that is about to be applied. Call it before `SharePartition.apply` clears the lock owners."""
        ending = self._ending(key, partition, lock_s)
        if isinstance(transition, DeadLetterWrite):
            self._dead_letters(key, transition, ending)
            return
        for expired_lock in transition.ended_deliveries:
            self._settled(key, expired_lock, LOCK_TIMEOUT, ending)
        types = transition.acknowledge_types
        for index, run in enumerate(transition.runs):
            if run.pending is transition and run.partition is partition:
                outcome = OUTCOMES[types[index]] if types else SESSION_CLOSE
                self._settled(key, run, FORCED_RELEASE if transition.is_forced else outcome, ending)
        if isinstance(partition, QueuePartition):
            self._delayed(key, partition, transition, ending)

    def reverted(self, key: ShareKey, partition: SharePartition, transition: Transition, lock_s: float) -> None:
        """Record a change that the store refused: locks that expired in the meantime are free again."""
        ending = self._ending(key, partition, lock_s)
        for expired_lock in transition.ended_deliveries:
            self._settled(key, expired_lock, LOCK_TIMEOUT, ending)

    def renewed(self, key: ShareKey) -> None:
        if len(self._renewed) < RENEWED_MAX:
            self._renewed[key] = None

    def forced_release(self, key: ShareKey, member_id: str, transition: Transition) -> None:
        records = sum(run.last - run.first + 1 for run in transition.runs)
        self._audit.offer("forced_release", _place(key), key.group_id, member_id, (records, len(transition.runs)))

    def moved(self, kind: str, group_id: str, partitions: int, held_back_s: float, records: int) -> None:
        """Record that the other side serves a group from now on. `records`: number that it delivers again."""
        self._audit.offer(kind, NOWHERE, group_id, None, (partitions, round(held_back_s * 1000), records))

    def replacing(self, request: Request, begins: Mapping[ShareKey, int | None]) -> Replacing:
        """Prepare events for replaced state. `begins`: new start offset by share partition. None if it is deleted."""
        shares = {key: self._coordinator.share(key) for key in begins}
        start_offsets = {key: None if share is None else share.partition.start_offset for key, share in shares.items()}
        return Replacing(self._audit, request, begins, start_offsets)

    def _settled(self, key: ShareKey, ended: EndedDelivery | OffsetRun, outcome: str, ending: _Ending) -> None:
        sums, start_offset, lock_s, now, wall_ms = ending
        held_s = max(now - ended.acquired_at, 0.0)
        renew_ms = round(max(held_s - lock_s, 0.0) * 1000) if ended.renewals else 0
        held = (ended.first, ended.last, ended.count, wall_ms - round(held_s * 1000))
        values = (*held, outcome, ended.renewals, renew_ms, start_offset, PROXY)
        self._audit.offer("settle", sums.place, key.group_id, ended.owner, values)
        sums.hold_ms += held_s * 1000 * (ended.last - ended.first + 1)

    def _dead_letters(self, key: ShareKey, write: DeadLetterWrite, ending: _Ending) -> None:
        """Record that dead letters were written."""
        queue = self._coordinator.settings(key.group_id).queue
        topic = None if queue is None or queue.dead_letters is None else queue.dead_letters.topic
        for run in write.runs:
            cause = REJECTED_CAUSE if run.state == REJECTED else EXHAUSTED_CAUSE
            self._audit.offer(
                "dead_letter", ending[0].place, key.group_id, None, (run.first, run.last, run.count, cause, topic)
            )

    def _delayed(self, key: ShareKey, partition: QueuePartition, transition: Transition, ending: _Ending) -> None:
        """Record the records of a change that wait for their redelivery."""
        sums, _, _, now, wall_ms = ending
        for first, last, count, due in partition.delays_of(transition):
            values = (first, last, count, wall_ms + round((due - now) * 1000))
            self._audit.offer("delayed", sums.place, key.group_id, None, values)

    def _ending(self, key: ShareKey, partition: SharePartition, lock_s: float) -> _Ending:
        sums = self._sums.get(key) or self._begin(key)
        return sums, partition.start_offset, lock_s, self._timers.now(), self._timers.wall_ms()

    def _begin(self, key: ShareKey) -> _ShareSums:
        if len(self._sums) >= SUMS_MAX:
            self._add_sums()
        sums = self._sums[key] = _ShareSums(_place(key))
        return sums

    def _add_sums(self) -> None:
        completed, self._sums = self._sums, {}
        for sums in completed.values():
            load = self._audit.loads.of(sums.place)
            load.rows += sums.rows
            load.bytes += sums.bytes
            load.hold_ms += sums.hold_ms

    def _note_member(self, group_id: str, member_id: str) -> None:
        """Store the client id and host of a member, which may have left when the interval ends."""
        group = self._coordinator.group(group_id)
        member = None if group is None else group.members.get(member_id)
        if len(self._members) >= MEMBERS_MAX:
            self._report_members()
            self._members.clear()
        if member is not None:
            self._members[group_id, member_id] = member

    def _report_members(self) -> None:
        for (group_id, member_id), member in self._members.items():
            if member is not None:
                self._audit.offer("member", NOWHERE, group_id, member_id, (member.client_id, member.client_host))
                self._members[group_id, member_id] = None
        if self._timers.now() - self._members_since >= MEMBERS_EVERY_S:
            self._members_since = self._timers.now()
            self._members.clear()

    def _report_blocked(self) -> None:
        """Report the keys of ordered groups for which most records wait."""
        shares = [entry for group_id in self._coordinator.ordered for entry in self._coordinator.loaded_of(group_id)]
        now = self._timers.now()
        for key, share in nlargest(BLOCKED_PARTITIONS_MAX, shares, key=_blocked_records):
            share.note_oldest(now)
            for blocked_key in share.partition.blocked():
                blocked_ms = (
                    round((now - share.oldest_since) * 1000) if blocked_key.blocking_offset == share.oldest else None
                )
                values = (f"{blocked_key.hash:016x}", blocked_key.blocking_offset, blocked_key.waiting, blocked_ms)
                self._audit.offer("blocked", _place(key), key.group_id, None, values)

    def _report_renewed(self) -> None:
        remaining = RENEW_EVENTS_MAX
        for key in list(self._renewed):
            del self._renewed[key]
            share = self._coordinator.share(key)
            locks = [] if share is None else [lock for lock in share.partition.locks() if lock.renewals]
            if share is None or not locks:
                continue
            if remaining > 0:
                self._report_renewals(key, share, locks)
                remaining -= len(locks)
                self._renewed[key] = None
            else:
                self._renewed = {key: None} | self._renewed
                break

    def _report_renewals(self, key: ShareKey, share: Share, locks: Iterable[Lock]) -> None:
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
    """Reports the changes of one administrator request once they are stored, even if the client disconnects."""

    audit: Audit
    request: Request
    begins: Mapping[ShareKey, int | None]
    before: Mapping[ShareKey, int | None]

    def follow(self, written: Promise[dict[ShareKey, ErrorCode]]) -> None:
        """Write an event for each share partition whose write succeeds."""

        def report() -> None:
            for key, code in written.result().items():
                if code == ErrorCode.NONE:
                    values = (self.request, self.begins[key], self.before[key])
                    self.audit.offer("offsets_altered", _place(key), key.group_id, None, values)

        written.on_settled(report)


def _blocked_records(entry: tuple[ShareKey, Share]) -> int:
    return entry[1].partition.blocked_records()


def _place(key: ShareKey) -> Place:
    return Place(key.topic_id, key.partition)
