"""Storms over the share requests: members, brokers and the journal do what they like, in an order given by a seed.

Invariants: a record whose acceptance was confirmed is never delivered again; a record is held by one member at a time;
and when the storm is over, every unconfirmed record is available, with nothing left over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from kafka_share_proxy.sharegroups.fetch import session_survey
from kafka_share_proxy.sharegroups.state import state_writes
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

from tests.support.ports import Member, SlowJournal, World, entries

DELIVERIES_MAX = 10
STEPS = 150
LOCK_S = 30.0


class Storm:
    """One world and what is known of its records."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.responds_late = False
        """True if clients may get the error for an unknown outcome."""
        self.journal = SlowJournal()
        self.world = World(journal=self.journal)
        self.world.configure("g", share_auto_offset_reset="earliest", share_delivery_count_limit=str(DELIVERIES_MAX))
        self.topics = [self.world.cluster.create(f"t{i}", leaders=(1, 2)) for i in range(2)]
        self.members = [self._member(i) for i in range(4)]
        self.pending: dict[Member, tuple[object, dict, float]] = {}
        """(the reply, its acknowledgements, when the request was sent)"""
        self.held: dict[Member, dict[tuple[bytes, int], list[tuple[int, int]]]] = {m: {} for m in self.members}
        self.settled: set[tuple[bytes, int, int]] = set()
        self.unconfirmed: set[tuple[bytes, int, int]] = set()
        """Accepted by a member that left before its response."""
        self.holders: dict[tuple[bytes, int, int], tuple[Member, float]] = {}
        """Exclusive holder of each record, and the end of its lock."""
        self.deliveries: Counter[tuple[bytes, int, int]] = Counter()

    def _member(self, index: int) -> Member:
        return self.world.member(member_id=f"m{index}", node_id=1 + index % 2)

    def step(self) -> None:
        self.random.choices(
            [self.fetch, self.produce, self.wait, self.leave, self.move, self.stall, self.flow, self.refuse],
            [60, 20, 30, 3, 1, 4, 8, 4],
        )[0]()
        self.collect()

    def produce(self) -> None:
        topic = self.random.choice(self.topics)
        self.world.cluster.produce(topic, self.random.randint(1, 20), self.random.randrange(2))

    def wait(self) -> None:
        self.world.timers.advance(self.random.choice([0.001, 0.05, 0.3, 0.6, 2.5, 11.0]))

    def leave(self) -> None:
        member = self.random.choice(self.members)
        member.connection.close()
        member.reconnect()
        member.epoch = 0
        self._give_up(member)
        self.held[member] = {}
        self._free(lambda record: self.holders[record][0] is member)

    def _free(self, is_free: Callable[[tuple[bytes, int, int]], bool]) -> None:
        for record in [record for record in self.holders if is_free(record)]:
            del self.holders[record]

    def _give_up(self, member: Member) -> None:
        """The member will never know whether what it said was done."""
        for place, batches in self.pending.pop(member, (None, {}, 0.0))[1].items():
            for first, last, types in batches:
                if types == [1]:
                    self.unconfirmed.update((*place, offset) for offset in range(first, last + 1))

    def move(self) -> None:
        topic, partition = self.random.choice(self.topics), self.random.randrange(2)
        self._free(lambda record: record[:2] == (topic.topic_id, partition))
        self.world.cluster.move_leader(topic, self.random.choice([1, 2]), partition)

    def stall(self) -> None:
        self.world.cluster.held.add(self.random.choice([1, 2, 3, 12]))
        self.journal.slow = self.random.random() < 0.5

    def flow(self) -> None:
        self.world.cluster.release()
        while self.journal.appends:
            self.journal.confirm()
        self.journal.slow = False

    def refuse(self) -> None:
        if self.journal.appends:
            self.journal.refuse(ErrorCode.NOT_COORDINATOR)

    def fetch(self) -> None:
        idle = [member for member in self.members if member not in self.pending]
        if not idle:
            return
        member = self.random.choice(idle)
        acks = {}
        if member.epoch > 0:
            for place, spans in self.held[member].items():
                if spans and self.random.random() < 0.8:
                    acks[place] = [(first, last, [self.random.choice([1, 1, 1, 2])]) for first, last in spans]
        topics = self.topics if member.epoch == 0 else []
        sent_at = self.world.timers.now()
        reply = member.send_fetch(
            *topics,
            acks=acks or None,
            wait_ms=self.random.choice([0, 300, 1500]),
            max_records=self.random.choice([1, 7, 100]),
            batch_size=self.random.choice([1, 100]),
            share_acquire_mode=self.random.choice([0, 1]),
        )
        self.pending[member] = (reply, acks, sent_at)
        for place, batches in acks.items():
            reported = {(*place, offset) for first, last, _ in batches for offset in range(first, last + 1)}
            self._free(reported.__contains__)  # the journal may have it long before the response

    def collect(self) -> None:
        for member, (reply, acks, sent_at) in list(self.pending.items()):
            if reply.done:
                del self.pending[member]
                self.take(member, reply, acks, sent_at)

    def take(self, member: Member, reply, acks: dict, sent_at: float) -> None:
        response = reply.message
        if response.error_code != ErrorCode.NONE:
            assert response.error_code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            member.epoch = 0
            self.held[member] = {}
            return
        partition_entries = entries(response)
        for place, batches in acks.items():
            self.held[member].pop(place, None)
            if partition_entries[place].acknowledge_error_code == ErrorCode.NONE:
                for first, last, types in batches:
                    if types == [1]:
                        self.settled.update((*place, offset) for offset in range(first, last + 1))
            elif self.responds_late:  # it was unknown in time whether it was stored
                for first, last, _ in batches:
                    self.unconfirmed.update((*place, offset) for offset in range(first, last + 1))
        for place, entry in partition_entries.items():
            for span in entry.acquired_records:
                for offset in range(span.first_offset, span.last_offset + 1):
                    record = (*place, offset)
                    assert record not in self.settled, "a confirmed record came again"
                    self.deliveries[record] = span.delivery_count
                    assert span.delivery_count <= DELIVERIES_MAX
                    self.hold(member, record, sent_at + LOCK_S)
                self.held[member].setdefault(place, []).append((span.first_offset, span.last_offset))

    def hold(self, member: Member, record: tuple[bytes, int, int], until: float) -> None:
        """The member exclusively holds a record at least until then; that may be over when its response arrives.

        Not records from a node that is no longer the leader: they are free as soon as the move is noticed.
        """
        now = self.world.timers.now()
        topic_id, partition, _ = record
        leaders = {topic.topic_id: topic.logs[partition].leader for topic in self.topics}
        if until > now and leaders[topic_id] == member.connection.node_id:
            holder, held_until = self.holders.get(record, (member, 0.0))
            assert holder is member or held_until <= now, "held by two"
            self.holders[record] = (member, until)

    def calm(self) -> None:
        """Everything flows again, everybody leaves, and two fresh members take what there is."""
        self.flow()
        self.world.is_restless = False
        for member in self.members:
            member.connection.close()
            self._give_up(member)
        self.flow()
        self.collect()
        self.world.timers.advance(3)
        self.world.assert_idle()
        for node_id in (1, 2):
            self.drain(self.world.member(member_id=f"last{node_id}", node_id=node_id))

    def drain(self, member: Member) -> None:
        acks, idle = {}, 0
        for _ in range(2000):
            response = member.fetch(*(self.topics if member.epoch == 0 else []), acks=acks or None, wait_ms=0)
            assert response.error_code == ErrorCode.NONE
            acks = {}
            for place, entry in entries(response).items():
                assert entry.acknowledge_error_code == ErrorCode.NONE
                for span in entry.acquired_records:
                    acks.setdefault(place, []).append((span.first_offset, span.last_offset, [1]))
                    for offset in range(span.first_offset, span.last_offset + 1):
                        assert (*place, offset) not in self.settled, "a confirmed record came again"
                        self.settled.add((*place, offset))
            idle = 0 if acks else idle + 1
            if idle > 3:
                return
            self.world.timers.advance(0.15)
        raise AssertionError("there is no end to it")


@pytest.mark.parametrize("seed", range(60))
def test_storm(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is lost and no confirmed one is delivered again, whatever happens in between.

    In half of them clients wait for the journal as long as it takes: there every refusal is a definite one. In the last
    third every request is worked on in slices as small as can be, with the others in between.
    """
    storm = Storm(seed)
    storm.world.is_restless = seed >= 40
    if storm.world.is_restless:
        monkeypatch.setattr(session_survey, "SURVEYED_AT_ONCE", 0)
    storm.responds_late = bool(seed % 2)
    if not storm.responds_late:
        monkeypatch.setattr(state_writes, "RESPONSE_MAX_S", 1e9)
    for _ in range(STEPS):
        try:
            storm.step()
        except UpstreamLost:
            continue
    storm.calm()
    produced = {
        (topic.topic_id, partition, offset)
        for topic in storm.topics
        for partition, log in enumerate(topic.logs)
        for offset in range(log.end)
    }
    exhausted = {record for record in produced - storm.settled if storm.deliveries[record] >= DELIVERIES_MAX}
    assert produced - storm.settled - exhausted <= storm.unconfirmed
    assert storm.settled <= produced
