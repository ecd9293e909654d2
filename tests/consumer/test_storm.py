"""Members that join, leave, delay and die in any order: no partition is read by two members, and no record is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.consumer.events import Commit, LeaveGroup, PartitionsLost
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.test_core import PROTOCOLS, world_of
from tests.consumer.world import Member, World

TOPICS = {"p": 4, "q": 3}
EVERY = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
STEPS = 120
MEMBERS_MAX = 5
LATENCIES_S = (0.001, 0.01, 0.1, 2.0)
LOST_SHARE = 0.02
"""Share of lost responses if members are killed, too."""


class Storm:
    """One story by a seed."""

    def __init__(self, protocol: str, seed: int, *, kills: bool) -> None:
        self.choose = random.Random(f"{protocol} {seed} {kills}")
        self.protocol, self.kills = protocol, kills
        self.world = World(world_of(protocol, **TOPICS).kafka, latency=lambda: self.choose.choice(LATENCIES_S))
        self.everybody: list[Member] = []
        self.topics: dict[Member, list[str]] = {}
        self.calls = 0
        self.delayed: dict[Member, int] = {}
        """How many more polls it delays."""
        if kills:
            take = self.world.kafka.take
            self.world.kafka.take = lambda who, request, reply, now: take(who, request, self.lossy(reply), now)  # type: ignore[method-assign]
        self.join()

    def lossy(self, reply: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a reply function that sometimes loses the response of a processed request."""
        if self.choose.random() >= LOST_SHARE:
            return reply
        return lambda _: reply(RequestFailure(FailureKind.DISCONNECTED))

    def join(self) -> None:
        options = {**PROTOCOLS[self.protocol], "max_poll_interval_s": 60.0, "session_timeout_s": 10.0}
        member = self.world.member(f"m{len(self.everybody)}", **options)
        self.everybody.append(member)
        self.topics[member] = self.choose.choice((["p"], ["p", "q"], ["p", "q"]))
        member.subscribe(*self.topics[member])

    def poll(self, member: Member) -> None:
        """Commit the returned records, and sometimes delay a revocation."""
        before = len(member.got)
        outcome = member.poll()
        offsets = {place: OffsetAndMetadata(offset + 1) for place, offset in member.got[before:]}
        if offsets:
            self.calls += 1
            member.handle(Commit(self.calls, offsets))
        if outcome.to_be_revoked:
            left = self.delayed.setdefault(member, self.choose.randrange(8))
            if left:
                self.delayed[member] = left - 1
                put_off = [place for place in outcome.to_be_revoked if self.choose.random() < 0.7]
                member.core.delay_revoke(put_off, self.world.now)
        else:
            self.delayed.pop(member, None)

    def step(self) -> None:
        members = self.world.members
        kind = self.choose.randrange(40)
        if kind == 0 and len(members) < MEMBERS_MAX:
            self.join()
        elif kind == 1 and len(members) > 1:
            member = self.choose.choice(members)
            member.handle(LeaveGroup(9999))
            self.world.until(lambda: 9999 in member.results(), [])
            members.remove(member)
        elif kind == 2 and len(members) > 1 and self.kills:
            self.world.kill(self.choose.choice(members))
        elif kind < 12:
            self.world.kafka.produce(self.choose.choice(EVERY), self.choose.randint(1, 9))
        self.run()

    def run(self) -> None:
        for member in list(self.world.members):
            self.poll(member)
        self.world.run(self.choose.choice((0.01, 0.1, 0.6)))
        self.nobody_holds_what_another_holds()

    def nobody_holds_what_another_holds(self) -> None:
        held = [place for member in self.world.members for place in member.core.positions.assigned]
        assert len(held) == len(set(held))

    def expected(self) -> set[TopicPartition]:
        """Return the partitions of all topics to which a member subscribes."""
        topics = {topic for member in self.world.members for topic in self.topics[member]}
        return {place for place in EVERY if place.topic in topics}

    def is_calm(self) -> bool:
        """Return True if every wanted partition is held, read and committed."""
        expected = self.expected()
        held = {place for member in self.world.members for place in member.core.positions.assigned}
        ends = {place: end for place, end in self.world.kafka.ends.items() if place in expected}
        return held == expected and all(self.world.kafka.committed.get(place) == end for place, end in ends.items())


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("seed", [*range(10), 36, 147])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_record_is_lost_or_read_twice_and_no_partition_has_two_readers(
    protocol: str, seed: int, kills: bool
) -> None:
    storm = Storm(protocol, seed, kills=kills)
    for _ in range(STEPS):
        storm.step()
    for _ in range(2000):
        if storm.is_calm():
            break
        storm.run()
    assert storm.is_calm(), storm.world.kafka.log[-5:]
    got = [each for member in storm.everybody for each in member.got]
    expected, ends = storm.expected(), storm.world.kafka.ends
    every = {(place, offset) for place in expected for offset in range(ends.get(place, 0))}
    assert every <= set(got)
    if not kills:
        assert len(got) == len(set(got)), "no record twice: what is released is committed"
        assert [each for member in storm.everybody for each in member.of(PartitionsLost)] == []
