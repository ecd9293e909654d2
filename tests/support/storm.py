"""Random events for a whole coordinator, in an order that a chooser picks (a seed, or every order there is).

The events are members and acknowledgements of every kind, crashes, passing time, all failures of a journal, and changes
of the owner.

`Storm.step` executes one event and checks its effects; `Storm.look` compares everything. Invariants:

- a record is held by one member at a time, until its lock ends, is released, or the owner is gone;
- a record confirmed as accepted, rejected or a gap is in the journal when it is confirmed, and is never delivered
  again;
- a delivery count is one more than the last, after a takeover one more than the last stored one, and never beyond the
  limit;
- start offsets never go back, neither live nor stored, except by an administrator; nor do group epochs that a member
  received;
- after an administrator replaced or deleted state, nothing of the old one is reported as done or seen again;
- the settings in force are the last reported ones, after a takeover possibly unreported ones;
- the journal returns the live state without its locks, except for operations in flight;
- alarms are never late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.apis.offset_requests import begin_at
from kafka_share_proxy.sharegroups.model.acquiring import ReadRecords
from kafka_share_proxy.sharegroups.model.coordinator import Change, ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.group import JOIN_EPOCH, LEAVE_EPOCH, Heartbeat, TopicInfo
from kafka_share_proxy.sharegroups.model.partition import Transition
from kafka_share_proxy.sharegroups.model.sessions import Session, SessionKey
from kafka_share_proxy.sharegroups.model.settings import (
    DELIVERY_COUNT_LIMIT,
    LOCK_DURATION,
    RENEW_ENABLE,
    BrokerShareLimits,
)
from kafka_share_proxy.sharegroups.model.snapshot import ACKNOWLEDGED, ARCHIVED, AVAILABLE, ShareSnapshot
from kafka_share_proxy.sharegroups.state import state_records
from kafka_share_proxy.sharegroups.state.group_changes import ShareChanges
from kafka_share_proxy.sharegroups.state.state_records import StateKey
from kafka_share_proxy.sharegroups.state.state_writes import Outcome, ShareWrites
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.sharegroups.model.world import Batch, Chooser, EveryChoice
from tests.support.storm_journals import LogJournal, StormJournal

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, REJECT: ARCHIVED}
"""Final state of a record once one of these is confirmed."""
TOPIC = b"t" * 16
LOCK_S, LOCK_MAX_S = 30.0, 60.0
NODES = (1, 2)
STORY_SHOWN = 40


@dataclass
class Held:
    """A record in a member's hands."""

    member: str
    deadline: float
    node: int
    pending: bool = False


class Reported:
    """Settings of a group, as far as reported."""

    def __init__(self, limit: int) -> None:
        self.default = self.limit = self.least = self.most = limit
        """Deliveries: the broker's, the group's, and the bounds of what the group's ever was."""
        self.values: dict[str, str] = {}
        self.lock_s, self.renew = LOCK_S, True
        self.requested: dict[str, str] | None = None
        """A change with an unknown outcome."""

    def change(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.lock_s = int(values.get(LOCK_DURATION, LOCK_S * 1000)) / 1000
        self.limit = int(values.get(DELIVERY_COUNT_LIMIT, self.default))
        self.renew = values.get(RENEW_ENABLE, "true") == "true"
        self.least, self.most = min(self.least, self.limit), max(self.most, self.limit)


class Partition:
    """Known facts of one share partition, separate from the coordinator's."""

    def __init__(self, key: ShareKey) -> None:
        self.key = key
        self.end = 0
        self.batches: list[Batch] = []
        self.node = NODES[0]
        self.held: dict[int, Held] = {}
        self.final: dict[int, int] = {}
        """Offset -> confirmed state."""
        self.count: Counter[int] = Counter()
        """Deliveries, as the owner must remember them."""
        self.maybe: set[int] = set()
        """A final acknowledgement whose outcome was never reported."""
        self.start = 0
        self.under_way = 0
        self.unstored = False
        """A lock ended and that could not be stored, or ended while what its holder said could not be; the next that is
        stored says it."""
        self.epoch: int | None = None
        """Epoch of the state; None where there is none."""
        self.first = 0
        """First offset of the share partition: offsets below it have no owner."""
        self.lives = 0
        """How often it began or was deleted."""
        self.requested: list[tuple[int | None, int]] = []
        """(epoch, first offset) of starts and deletions with an unknown outcome."""

    def begin(self, epoch: int | None, offset: int) -> None:
        """Begin here, with nothing settled, held or counted; or not at all."""
        self.epoch, self.first, self.start, self.under_way, self.unstored = epoch, offset, offset, 0, False
        self.lives += 1
        for known in (self.held, self.final, self.count, self.maybe):
            known.clear()


class Storm:
    """One coordinator after the other over one journal."""

    def __init__(
        self, chooser: Chooser, *, groups: int = 3, partitions: int = 2, members: int = 3, limit: int = 4
    ) -> None:
        self.chooser = chooser
        self.now = 0.0
        self.coordinator: ShareCoordinator
        self.journal = self.make_journal()
        self.limits = BrokerShareLimits(group_share_delivery_count_limit=limit)
        self.members = [f"m{number}" for number in range(members)]
        self.groups = [f"group-{number}" for number in range(groups)]
        self.reported = {group: Reported(limit) for group in self.groups}
        self.partitions = [Partition(ShareKey(group, TOPIC, n)) for group in self.groups for n in range(partitions)]
        self.story: list[str] = []
        self.response_epochs: Counter[str] = Counter()
        self.deleting: set[str] = set()
        """Groups with a requested deletion whose outcome is not reported yet."""
        self.calm = False
        self.actions = [
            *[self.produce] * 4, *[self.fetch] * 10, *[self.acknowledge] * 10, *[self.confirm] * 12, self.refuse,
            self.lose_response, self.meddle, *[self.pass_time] * 3, self.end_session, self.move_leader, self.rest,
            self.take_over, *[self.heartbeat] * 2,
        ]  # fmt: skip
        self._own()
        for partition in self.partitions:
            self.begin_at(partition, 0)
            self._confirm_all()

    # What may happen

    def step(self) -> None:
        action = self.actions[self.chooser.number(0, len(self.actions) - 1)]
        self.story.append(action.__name__)
        action()
        assert self.coordinator.next_deadline() <= self._next_end(), "an alarm would be late"

    def produce(self) -> None:
        partition = self._some_partition()
        for _ in range(self.chooser.number(1, 3)):
            size = self.chooser.number(1, 4)
            partition.batches.append(Batch(partition.end, partition.end + size - 1))
            partition.end += size

    def fetch(self) -> None:
        partition = self._some_partition()
        mode, batch = bool(self.chooser.number(0, 1)), self.chooser.number(1, 4)
        self.fetch_as(partition, self._some_member(), self.chooser.number(1, 8), mode, batch)

    def fetch_as(
        self, partition: Partition, member: str, count: int, record_limit: bool, batch_size: int = 4
    ) -> list[int]:
        """Read the log once from the head on. Return the offsets that are acquired."""
        share = self.coordinator.share(partition.key)
        settings = self.coordinator.settings(partition.key.group_id)
        if share is None or share.partition.acquirable_from(settings) is None:
            return []
        if share.node_id != partition.node:
            self._follow(partition)
        head = share.partition.next_fetch_offset()
        read = self.read(partition, head)
        got = share.partition.acquire(member, read, count, batch_size, record_limit, settings, self.now)
        deliveries = [(offset, n) for first, last, n in got.ranges for offset in range(first, last + 1)]
        announced = self.reported[partition.key.group_id]
        self.story[-1] += f" {partition.key.group_id}/{partition.key.partition} {member} {list(got.ranges)}"
        for offset, delivery in deliveries:
            assert partition.first <= offset < partition.end, "there is no such record"
            assert offset not in partition.final, "a settled record came again"
            held = partition.held.get(offset)
            assert held is None or (not held.pending and held.deadline <= self.now), "held by two"
            assert delivery == partition.count[offset] + 1, f"offset {offset}: count after {partition.count[offset]}"
            assert delivery <= announced.most, "beyond the limit"
            partition.count[offset] = delivery
            partition.held[offset] = Held(member, self.now + announced.lock_s, partition.node)
        return [offset for offset, _ in deliveries]

    def read(self, partition: Partition, head: int) -> ReadRecords:
        """Return the records of the log from `head` on."""
        return ReadRecords(head, [batch for batch in partition.batches if batch.last_offset >= head])

    def acknowledge(self) -> None:
        """Acknowledge some records that a member holds, with any types, and sometimes others."""
        partition, member = self._some_partition(), self._some_member()
        mine = sorted(o for o, held in partition.held.items() if held.member == member and not held.pending)
        if not mine:
            return
        first = mine[self.chooser.number(0, len(mine) - 1)]
        last = first
        while last + 1 in mine and self.chooser.number(0, 2):
            last += 1
        types = [self.chooser.number(GAP, RENEW) if self.chooser.number(0, 1) else ACCEPT]
        if last > first and self.chooser.number(0, 2) == 0:
            types = [self.chooser.number(GAP, RENEW) for _ in range(first, last + 1)]
        self.acknowledge_as(partition, member, first, last, types)

    def acknowledge_as(self, partition: Partition, member: str, first: int, last: int, types: list[int]) -> None:
        """Send one acknowledgement. Its outcome is known when the journal has written it."""
        self.story[-1] += f" {partition.key.group_id}/{partition.key.partition} {member} {first}-{last} {types}"
        share = self.coordinator.share(partition.key)
        assert share is not None
        settings = self.coordinator.settings(partition.key.group_id)
        decided = share.partition.decide_acknowledge(member, [(first, last, types)], True, settings, self.now)
        each = dict(zip(range(first, last + 1), types if len(types) > 1 else types * (last - first + 1), strict=True))
        mine = [partition.held.get(offset) for offset in each]
        ours = all(held is not None and held.member == member and not held.pending for held in mine)
        announced = self.reported[partition.key.group_id]
        ours = ours and (announced.renew or RENEW not in types)
        assert isinstance(decided, Transition) == ours, f"{decided} for records held as {mine}"
        if not isinstance(decided, Transition):
            return
        for offset, kind in each.items():
            if kind == RENEW:
                partition.held[offset].deadline = self.now + announced.lock_s
            else:
                partition.held[offset].pending = True
        kinds = {offset: kind for offset, kind in each.items() if kind != RENEW}
        if decided.changes:
            self._write(partition, decided, kinds)

    def meddle(self) -> None:
        """Acknowledge a record that the member does not hold: it is refused, and nothing changes."""
        partition, member = self._some_partition(), self._some_member()
        if partition.end and partition.epoch is not None:
            offset = self.chooser.number(max(partition.start, 0), partition.end)
            held = partition.held.get(offset)
            if held is None or held.member != member or held.pending:
                share = self.coordinator.share(partition.key)
                assert share is not None
                before = share.partition.snapshot()
                settings = self.coordinator.settings(partition.key.group_id)
                decided = share.partition.decide_acknowledge(
                    member, [(offset, offset, [ACCEPT])], True, settings, self.now
                )
                passed = offset < share.partition.start_offset and isinstance(decided, Transition)
                assert not isinstance(decided, Transition) or (passed and not decided.changes), "took a stranger's word"
                assert share.partition.snapshot() == before

    def confirm(self) -> None:
        self.journal.confirm_some(self.chooser)

    def refuse(self) -> None:
        self.journal.refuse_some(self.chooser)

    def lose_response(self) -> None:
        self.journal.lose_response(self.chooser)

    def pass_time(self) -> None:
        self.pass_exactly((0.1, 5.0, 16.0, LOCK_S)[self.chooser.number(0, 3)])

    def pass_exactly(self, seconds: float) -> None:
        self.now += seconds
        for partition in self.partitions:
            self._free(partition, lambda held: held.deadline <= self.now)
        self._write_final(self.coordinator.expire(self.now))

    def end_session(self) -> None:
        """End a member's connection to one node: records that it holds there are released, of all its partitions."""
        group, member = self._some_group(), self._some_member()
        node = NODES[self.chooser.number(0, 1)]
        mine = [p for p in self.partitions if p.key.group_id == group]
        session = Session(SessionKey(group, member, node), 1, [TopicIdPartition(TOPIC, p.key.partition) for p in mine])
        for partition in mine:
            self._follow(partition)
        self._write_all(self.coordinator.release(session))

    def move_leader(self) -> None:
        partition = self._some_partition()
        partition.node = NODES[self.chooser.number(0, 1)]
        self._follow(partition)

    def rest(self) -> None:
        self.coordinator.rest_idle()

    def heartbeat(self) -> None:
        """Join, continue or leave; an epoch is returned only once it is stored."""
        group_id, member_id = self._some_group(), self._some_member()
        group = self.coordinator.group(group_id)
        if group is None:
            self.changes.hold_group(group_id)
        if group is None or group.deleting:
            return
        member = group.members.get(member_id)
        epoch = JOIN_EPOCH if member is None else (member.epoch, LEAVE_EPOCH)[self.chooser.number(0, 3) == 0]
        beat = Heartbeat(member_id=member_id, member_epoch=epoch, topics=("t",) if epoch == JOIN_EPOCH else None)
        settings = self.coordinator.settings(group_id)
        topics = {"t": TopicInfo(TOPIC, 2)}
        reply = group.heartbeat(beat, topics, settings, self.limits, self.now, self.coordinator.holds)
        assert reply.error == ErrorCode.NONE, reply
        current_epoch = group.epoch
        if current_epoch == group.stored_epoch:
            self.response_epochs[group_id] = max(self.response_epochs[group_id], current_epoch)
            return
        written = self.changes.store_epoch(group)

        def settle() -> None:
            if not refused(written):
                self.response_epochs[group_id] = max(self.response_epochs[group_id], current_epoch)

        written.on_settled(settle)

    def take_over(self) -> None:
        """Replace an owner that crashed or was fenced: its operations in flight are in the log or not, unreported."""
        fenced, waiting = self.chooser.number(0, 1), self.journal.change_hands(self.chooser)
        if fenced:  # it lives on, and holds nothing
            self.coordinator.clear()
            self._lost = True
            self.journal.stopped = True
            for promise in waiting:
                promise.fail(JournalRefused(ErrorCode.NOT_COORDINATOR))
            self.journal.stopped = False
        self._own()

    # What is seen

    def check_state(self) -> None:
        """Compare all there is."""
        for partition in self.partitions:
            share = self.coordinator.share(partition.key)
            if partition.epoch is None:
                assert share is None, "deleted state is back"
                continue
            assert share is not None, "state was lost"
            engine = share.partition
            assert engine.state_epoch == partition.epoch, "not the state that was asked for last"
            assert engine.start_offset >= partition.start, "start offset"
            partition.start = engine.start_offset
            locks = {o: lock for lock in engine.locks() for o in range(lock.first, lock.last + 1)}
            assert {o: lock.member_id for o, lock in locks.items()} == {
                o: held.member for o, held in partition.held.items()
            }, "who holds what"
            for offset, held in partition.held.items():
                assert held.pending or locks[offset].deadline == held.deadline, "until when"
            if partition.requested:
                continue  # the journal may have it already
            stored = self._stored(partition)
            if not partition.under_way and not partition.unstored:
                assert self.comparable(engine.snapshot()) == self.comparable(stored), (
                    "what is stored is the live state without locks"
                )
            for offset, state in partition.final.items():
                assert offset < stored.start_offset or _state(stored, offset)[0] == state, "confirmed, and not stored"
        for group_id, announced in self.reported.items():
            assert self.coordinator.stored_settings(group_id) == announced.values, "not the settings that were told"
            settings = self.coordinator.settings(group_id)
            assert (settings.lock_duration_s, settings.delivery_count_limit) == (announced.lock_s, announced.limit), (
                "in force"
            )

    def drain(self) -> None:
        """End the faults; every unsettled record is available, for the last time."""
        self.calm = True
        self.journal.confirm_all()
        self.story.append("drain")
        self.pass_exactly(LOCK_MAX_S)
        self._confirm_all()
        for partition in self.partitions:
            if partition.epoch is None:
                self.begin_at(partition, 0)
                self._confirm_all()
            for _ in range(20 * partition.end + 100):
                offsets = self.fetch_as(partition, "last", 100, True)
                share = self.coordinator.share(partition.key)
                assert share is not None
                if not offsets and share.partition.start_offset == partition.end:
                    break
                for offset in offsets:
                    self.acknowledge_as(partition, "last", offset, offset, [ACCEPT])
                    self._confirm_all()
            else:
                raise AssertionError(f"there is no end to {partition.key}")
            lost = set(range(partition.first, partition.end)) - partition.final.keys() - partition.maybe
            least = self.reported[partition.key.group_id].least
            assert all(partition.count[offset] >= least for offset in lost), f"lost: {sorted(lost)[:5]}"
        self.check_state()

    # How

    def _own(self) -> None:
        """Let a new owner read what is stored."""
        self._lost = False
        coordinator = self.coordinator = self.make_coordinator()
        state_records.load(
            coordinator, [(state_records.encode_key(key), value) for key, value in self.journal.stored.items()]
        )
        self.writes = self.make_writes()
        self.changes = ShareChanges(coordinator, self.writes)
        self.starting: set[ShareKey] = set()
        for group_id in self.groups:
            if coordinator.group(group_id) is None and group_id in self.deleting:
                self.response_epochs[group_id] = 0
            group = coordinator.add_group(group_id)
            assert group.epoch >= self.response_epochs[group_id], "group epoch"
            self._adopt_settings(group_id, coordinator.stored_settings(group_id))
        self.deleting.clear()
        for partition in self.partitions:
            for offset, held in partition.held.items():
                if held.pending:
                    partition.maybe.add(offset)
            partition.held.clear()
            partition.under_way, partition.unstored = 0, False
            value = self.journal.stored.get(StateKey("partition", *partition.key))
            self._adopt(partition, None if value is None else ShareSnapshot.decode(value))

    def make_coordinator(self) -> ShareCoordinator:
        return ShareCoordinator(self.limits)

    def make_journal(self) -> StormJournal | LogJournal:
        return StormJournal()

    def make_writes(self) -> ShareWrites:
        nothing = lambda *_, **__: None  # noqa: E731 - of three shapes
        journal: Any = self.journal
        return ShareWrites(journal, self.coordinator, nothing, lambda: self.now, nothing)

    def _adopt(self, partition: Partition, stored: ShareSnapshot | None) -> None:
        """Adopt the previous state, or one with a requested change of unknown outcome."""
        epoch = None if stored is None else stored.state_epoch
        if epoch != partition.epoch:
            offsets = [offset for requested, offset in partition.requested if requested == epoch]
            assert offsets, f"state of epoch {epoch}, which nobody asked for"
            partition.begin(epoch, offsets[-1])
        partition.requested.clear()
        if stored is not None:
            partition.start = stored.start_offset  # unstored automatic ends were not reported
            for offset in range(stored.start_offset, partition.end):
                partition.count[offset] = _state(stored, offset)[1]

    def _adopt_settings(self, group_id: str, stored: Mapping[str, str]) -> None:
        announced = self.reported[group_id]
        assert stored in (announced.values, announced.requested), "settings that nobody asked for"
        announced.change(stored)
        announced.requested = None

    def begin_at(self, partition: Partition, offset: int) -> None:
        """Begin a share partition, or replace its state."""
        services: Any = SimpleNamespace(
            coordinator=self.coordinator,
            writes=self.writes,
            reads=SimpleNamespace(starting=self.starting, wake=lambda _key: None),
            topology=SimpleNamespace(leader=lambda _topic_id, _partition: SimpleNamespace(node_id=partition.node)),
        )
        share = self.coordinator.share(partition.key)
        epoch = 0 if share is None else share.partition.state_epoch + 1
        self.when_replaced(partition, epoch, offset, begin_at(services, partition.key, offset))

    def when_replaced(self, partition: Partition, epoch: int | None, offset: int, outcome: Promise[Outcome]) -> None:
        """Forget everything known about it, once the replacement is reported."""
        requested, coordinator = (epoch, offset), self.coordinator
        partition.requested.append(requested)

        def settle() -> None:
            if coordinator is self.coordinator and not self._lost:
                partition.requested.remove(requested)
                if outcome.result()[partition.key] == ErrorCode.NONE:
                    partition.begin(epoch, offset)

        outcome.on_settled(settle)

    def _confirm_all(self) -> None:
        self.journal.confirm_all()

    def _follow(self, partition: Partition) -> None:
        change = self.coordinator.move_leader(partition.key, partition.node)
        for held in partition.held.values():
            held.node = partition.node
        if change is not None:
            self._write_all([change])

    def _write_all(self, changes: list[Change]) -> None:
        """Write releases that no member requested, so that the holders do not know of them."""
        for key, transition in changes:
            partition = self.of(key)
            offsets = [o for first, last, _, _ in transition.changes for o in range(first, last + 1)]
            for offset in offsets:
                partition.held[offset].pending = True
            self._write(partition, transition, dict.fromkeys(offsets, RELEASE))

    def _write(self, partition: Partition, transition: Transition, kinds: dict[int, int]) -> None:
        partition.under_way += 1
        by = (self.coordinator, partition.lives)
        outcome = self.writes.write([(partition.key, transition)])
        outcome.on_settled(lambda: self._reported(partition, by, kinds, outcome.result()))

    def _reported(
        self, partition: Partition, by: tuple[ShareCoordinator, int], kinds: dict[int, int], outcome: Outcome
    ) -> None:
        if by[0] is not self.coordinator or self._lost:
            return  # a takeover settled it
        if by[1] != partition.lives:
            assert outcome[partition.key] != ErrorCode.NONE, "told as done by state that was replaced"
            return
        partition.under_way -= 1
        if outcome[partition.key] != ErrorCode.NONE:
            for offset in kinds:
                partition.held[offset].pending = False
            partition.unstored |= self._free(partition, lambda held: held.deadline <= self.now)
            share = self.coordinator.share(partition.key)
            if share is not None and not partition.under_way and not partition.unstored and not partition.requested:
                live, stored = share.partition.snapshot(), self._stored(partition)
                assert self.comparable(live) == self.comparable(stored), "told as refused, and stored"
            return
        partition.unstored = False
        stored = self._stored(partition)
        for offset, kind in kinds.items():
            del partition.held[offset]
            if kind in FINAL:
                partition.final[offset] = FINAL[kind]
                assert offset < stored.start_offset or _state(stored, offset)[0] == FINAL[kind], "told, and not stored"

    def comparable(self, snapshot: ShareSnapshot) -> Any:
        """Return what live and stored state have in common."""
        return snapshot

    def _stored(self, partition: Partition) -> ShareSnapshot:
        return ShareSnapshot.decode(self.journal.stored[StateKey("partition", *partition.key)])

    def _write_final(self, changes: list[Change]) -> None:
        """Write final changes one by one.

        Outcomes of several groups are reported together, in another order than their completion.
        """
        coordinator = self.coordinator

        def write(partition: Partition, change: Change) -> None:
            lives = partition.lives
            partition.under_way += 1
            outcome = self.writes.write([change], final=True)

            def settle() -> None:
                if coordinator is self.coordinator and not self._lost and lives == partition.lives:
                    partition.under_way -= 1
                    partition.unstored = outcome.result()[partition.key] != ErrorCode.NONE

            outcome.on_settled(settle)

        for change in changes:
            write(self.of(change[0]), change)

    def _free(self, partition: Partition, is_free: Callable[[Held], bool]) -> bool:
        """Return True if any record was freed."""
        free = [offset for offset, held in partition.held.items() if not held.pending and is_free(held)]
        for offset in free:
            del partition.held[offset]
        return bool(free)

    def _next_end(self) -> float:
        """Return when the next lock or member expires."""
        locks = [held.deadline for p in self.partitions for held in p.held.values() if not held.pending]
        groups = [member.deadline for group in self.coordinator.groups.values() for member in group.members.values()]
        return min([*locks, *groups], default=inf)

    def of(self, key: ShareKey) -> Partition:
        return next(partition for partition in self.partitions if partition.key == key)

    def _some_partition(self) -> Partition:
        return self.partitions[self.chooser.number(0, len(self.partitions) - 1)]

    def _some_member(self) -> str:
        return self.members[self.chooser.number(0, len(self.members) - 1)]

    def _some_group(self) -> str:
        return self.groups[self.chooser.number(0, len(self.groups) - 1)]


def _state(snapshot: ShareSnapshot, offset: int) -> tuple[int, int]:
    """Return (state, delivery count) of an offset that is not below the start offset."""
    for first, last, state, count in snapshot.batches:
        if first <= offset <= last:
            return state, count
    return AVAILABLE, 0


def refused(promise: Promise[None]) -> bool:
    try:
        promise.result()
    except JournalRefused:
        return True
    return False


class TinyStorm(Storm):
    """Two members, three records in two batches, two deliveries each: small enough to see all that can happen."""

    def __init__(self, chooser: Chooser) -> None:
        super().__init__(chooser, groups=1, partitions=1, members=2, limit=2)
        self.only = self.partitions[0]
        self.only.batches, self.only.end = [Batch(0, 1), Batch(2, 2)], 3
        self.actions = [
            self.take, self.respond, self.confirm, self.refuse, self.lose_response, self.take_over, self.lock_ends,
        ]  # fmt: skip
        self.story.append("take")
        self.fetch_as(self.only, "m0", 2, True)

    def take(self) -> None:
        self.fetch_as(self.only, self._some_member(), (1, 3)[self.chooser.number(0, 1)], True)

    def respond(self) -> None:
        """Report the first held operation, of any caller."""
        mine = [offset for offset, held in sorted(self.only.held.items()) if not held.pending]
        if mine:
            whole = self.chooser.number(0, 1) and mine[:2] == [mine[0], mine[0] + 1]
            same = whole and self.only.held[mine[0]].member == self.only.held[mine[1]].member
            kind = (ACCEPT, RELEASE, RENEW)[self.chooser.number(0, 2)]
            self.acknowledge_as(self.only, self.only.held[mine[0]].member, mine[0], mine[int(bool(same))], [kind])

    def lock_ends(self) -> None:
        self.pass_exactly(LOCK_S)


def every_tiny_storm(steps: int) -> int:
    """Run all stories of this many steps. Return their number."""
    choices, stories = EveryChoice(), 0
    while choices.begin():
        storm = TinyStorm(choices)
        try:
            for _ in range(steps):
                storm.step()
                if choices.new:  # else an earlier story began in the same way
                    storm.check_state()
            storm.drain()
        except Exception as error:
            error.add_note("\n".join(storm.story))
            raise
        choices.end()
        stories += 1
    return stories


def run(chooser: Chooser, steps: int, kind: type[Storm] = Storm, check_every: int = 10, **sizes: int) -> Storm:
    """Run one storm. A failure is raised with the end of its story."""
    storm = kind(chooser, **sizes)
    try:
        for number in range(steps):
            storm.step()
            if number % check_every == 0:
                storm.check_state()
        storm.drain()
    except Exception as error:
        error.add_note(f"step {len(storm.story)}:\n" + "\n".join(storm.story[-STORY_SHOWN:]))
        raise
    return storm
