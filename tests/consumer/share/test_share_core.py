"""One share consumer with a scripted group: what its application meets; acceptance cases of renewals (KIP-1222)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kafka_share_proxy.consumer.events import AwaitAcknowledgements, CallDone, LeaveGroup, Subscribe
from kafka_share_proxy.consumer.share.share_acknowledgements import AcknowledgeType
from kafka_share_proxy.consumer.share.share_holds import LockLostError
from kafka_share_proxy.consumer.share.share_membership import ShareMemberState
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.share_world import HEARTBEAT_MS, ShareKafka, ShareMember
from tests.consumer.world import World

P0 = TopicPartition("a", 0)
ACCEPT, RELEASE, REJECT, RENEW = (AcknowledgeType(n) for n in (1, 2, 3, 4))


class Play:
    """Members m1, m2... Member of a group whose locks last this long."""

    def __init__(self, members: int = 2, records: int = 1, lock_s: float = 2.0, **options: Any) -> None:
        self.kafka = ShareKafka(a=1)
        self.kafka.share.lock_s = lock_s
        self.kafka.produce(P0, records)
        self.world = World(self.kafka)
        self.members = [ShareMember(self.world, f"m{number}", **options) for number in range(1, members + 1)]

    def until(self, seconds: float, *polling: ShareMember) -> list[tuple[str, int, int]]:
        """Let time pass; what these were given: member, offset, delivery count."""
        got, end = [], self.world.now + seconds
        while self.world.now < end:
            self.world.run(0.1)
            for member in polling:
                got += [(member.name, offset, count) for _, offset, count in member.offsets(0.3)]
        return got


def acknowledge(member: ShareMember, part: Any, kind: AcknowledgeType, *offsets: int) -> list[bool]:
    return [member.core.acknowledge(P0, offset, part.delivery, kind) for offset in offsets]


def accept_all(member: ShareMember) -> None:
    for part in member.poll(0.1).parts:
        acknowledge(member, part, ACCEPT, *part.records.positions.offsets)
    member.core.send_now()


def commit(member: ShareMember) -> Any:
    """Return what CallDone of a commit says."""
    member.core.send_now()
    member.core.handle(AwaitAcknowledgements(1), member.world.now)
    member.world.run(0.2)
    (done,) = [each for each in member.core.events() if isinstance(each, CallDone)]
    return done.value


# Renewals


def test_a003_1_a_renewed_record_is_not_delivered_to_others_and_keeps_its_count() -> None:
    """Lock 2 s, held for 7 s."""
    play = Play()
    one, two = play.members
    (part,) = one.poll().parts
    lost: list[int] = []
    job = one.core.begin_work(P0, 0, part.delivery, lambda: lost.append(0), play.world.now)
    assert play.until(7, two) == []
    assert one.core.end_work(job, ACCEPT, play.world.now) is True
    play.world.run(1)
    assert lost == []
    assert (play.kafka.share.shares[P0].settled, play.kafka.share.shares[P0].counts) == ({0}, {0: 1})
    renewals = [result.renewals for result in one.results if RENEW in result.types.values()]
    assert renewals == list(range(1, len(renewals) + 1))
    assert 7 / 2 < len(renewals) < 12


def test_a003_1_also_while_its_own_fetches_wait_at_the_broker() -> None:
    play = Play(lock_s=1.0)
    one, two = play.members
    (part,) = one.poll().parts
    job = one.core.begin_work(P0, 0, part.delivery, lambda: None, play.world.now)
    assert play.until(7, one, two) == []
    assert one.core.end_work(job, ACCEPT, play.world.now) is True


def test_a003_2_without_renewal_it_is_delivered_again_with_count_2() -> None:
    play = Play()
    one, two = play.members
    one.poll()
    assert play.until(3, two) == [("m2", 0, 2)]


def test_a003_3_a_renewal_after_the_lock_has_ended_is_refused() -> None:
    play = Play(members=1)
    (one,) = play.members
    (part,) = one.poll().parts
    play.world.run(2.1)
    assert acknowledge(one, part, RENEW, 0) == [True]
    assert commit(one)[P0].code is ErrorCode.INVALID_RECORD_STATE
    assert acknowledge(one, part, ACCEPT, 0) == [False]


def test_a003_4_a_renewal_of_anothers_record_leaves_its_lock_alone() -> None:
    play = Play()
    one, two = play.members
    (part,) = one.poll().parts
    play.world.run(2.5)
    assert two.offsets() == [(0, 0, 2)]
    until = play.kafka.share.shares[P0].locks[0].until
    acknowledge(one, part, RENEW, 0)
    assert commit(one)[P0].code is ErrorCode.INVALID_RECORD_STATE
    lock = play.kafka.share.shares[P0].locks[0]
    assert (lock.member, lock.until) == ("m2", until)


def test_a003_5_one_request_says_several_things() -> None:
    """10 done, 11 and 14 renewed, 12 available, 13 archived; the renewed ones come again, alone."""
    play = Play(members=1, records=15, lock_s=30)
    (one,) = play.members
    (part,) = one.poll().parts
    acknowledge(one, part, ACCEPT, *range(10))
    assert commit(one) == {P0: None}
    for offset, kind in zip(range(10, 15), (ACCEPT, RENEW, RELEASE, REJECT, RENEW), strict=True):
        one.core.acknowledge(P0, offset, part.delivery, kind, renewed=offset if kind is RENEW else None)
    begin = len(play.kafka.wire)
    assert one.poll().renewed == [11, 14]
    assert [each.split()[1] for each in play.kafka.wire[begin:] if "Acknowledge" in each] == ["ShareAcknowledge"]
    share = play.kafka.share.shares[P0]
    assert share.settled == {*range(11), 13}
    assert one.offsets() == [(0, 12, 2)]
    assert one.offsets(1) == []
    acknowledge(one, part, ACCEPT, 11, 14)
    assert commit(one) == {P0: None}


def test_a003_8_a_renewal_returns_the_new_duration() -> None:
    play = Play()
    one, two = play.members
    (part,) = one.poll().parts
    assert one.core.held.lock_s == 2.0
    play.kafka.share.lock_s = 6.0
    acknowledge(one, part, RENEW, 0)
    assert commit(one) == {P0: None}
    assert one.core.held.lock_s == 6.0
    assert play.until(3.5, two) == []
    assert acknowledge(one, part, ACCEPT, 0) == [True]
    assert commit(one) == {P0: None}


def test_a_group_that_does_not_renew_ends_the_work() -> None:
    """share.renew.acknowledge.enable=false"""
    play = Play(members=1)
    (one,) = play.members
    play.kafka.share.renews = False
    (part,) = one.poll().parts
    lost: list[int] = []
    one.core.begin_work(P0, 0, part.delivery, lambda: lost.append(0), play.world.now)
    play.world.run(1.5)
    assert lost == [0]
    with pytest.raises(LockLostError):
        one.core.begin_work(P0, 0, part.delivery, lambda: None, play.world.now)


# Modes and calls


def test_in_the_implicit_mode_a_poll_accepts_what_the_poll_before_returned() -> None:
    """Item 89."""
    play = Play(members=1, records=3, acknowledgement_mode="implicit")
    (one,) = play.members
    assert len(one.offsets()) == 3
    assert play.kafka.share.acknowledged == []
    one.offsets(1)
    assert play.kafka.share.shares[P0].settled == {0, 1, 2}
    play.kafka.produce(P0, 2)
    one.offsets()
    assert commit(one) == {P0: None}
    assert play.kafka.share.shares[P0].settled == set(range(5))
    assert commit(one) == {}


def test_in_the_implicit_mode_the_last_poll_is_released_at_the_end() -> None:
    play = Play(members=1, records=3, acknowledgement_mode="implicit")
    (one,) = play.members
    one.offsets()
    one.core.handle(LeaveGroup(1), play.world.now)
    play.world.run(1)
    assert play.kafka.share.acknowledged == []
    assert play.kafka.share.shares[P0].locks == {}


def test_a_renewed_record_is_returned_first_and_new_ones_follow() -> None:
    play = Play(members=1, records=2, lock_s=30)
    (one,) = play.members
    (part,) = one.poll().parts
    one.core.acknowledge(P0, 1, part.delivery, RENEW, renewed="record")
    play.kafka.produce(P0, 1)
    assert one.poll().renewed == ["record"]
    assert one.offsets() == [(0, 2, 1)]


def test_strict_limits_cut_the_response_and_keep_the_rest() -> None:
    play = Play(members=1, records=10, acquire_mode="record_limit", max_poll_records=4)
    (one,) = play.members
    assert one.offsets() == [(0, offset, 1) for offset in range(4)]
    assert one.offsets() == [(0, offset, 1) for offset in range(4, 8)]
    assert one.offsets() == [(0, 8, 1), (0, 9, 1)]


def test_unreadable_records_are_rejected_and_reported() -> None:
    play = Play(members=1, records=3, lock_s=30)
    (one,) = play.members
    broken = bytearray(play.kafka.records[P0][0])
    broken[-1] ^= 1
    play.kafka.records[P0][0] = bytes(broken)
    play.kafka.produce(P0, 2)
    got = [offset for _ in range(3) for _, offset, _ in one.offsets(1)]
    assert got == [3, 4]
    assert [kind for _, _, offset, kind in play.kafka.share.acknowledged if offset < 3] == [REJECT] * 3
    assert "a-0: the checksum" in str(one.events[0].error)


def test_members_divide_the_records_and_each_is_delivered_once() -> None:
    play = Play(members=3, records=0, lock_s=30, acknowledgement_mode="implicit")
    got: list[int] = []
    for _ in range(20):
        play.kafka.produce(P0, 7)
        got += [offset for member in play.members for _, offset, _ in member.offsets(0.2)]
    got += [offset for _ in range(5) for member in play.members for _, offset, _ in member.offsets(0.5)]
    assert sorted(got) == list(range(140))


def test_after_unsubscribing_it_can_subscribe_again() -> None:
    """Item 73."""
    play = Play(members=1, records=2, acknowledgement_mode="implicit")
    (one,) = play.members
    one.offsets()
    one.core.handle(LeaveGroup(1), play.world.now)
    play.world.run(2)
    assert one.core.membership.trace.state is ShareMemberState.OUTSIDE
    one.core.handle(Subscribe(frozenset({"a"})), play.world.now)
    assert one.offsets() == [(0, 0, 2), (0, 1, 2)]


def test_a_member_that_subscribes_while_it_leaves_stays() -> None:
    play = Play(members=1, records=2, lock_s=30)
    (one,) = play.members
    (part,) = one.poll().parts
    acknowledge(one, part, RENEW, 0)
    one.core.handle(AwaitAcknowledgements(7), play.world.now)
    one.core.handle(LeaveGroup(8), play.world.now)
    one.core.handle(LeaveGroup(9), play.world.now)
    one.core.handle(Subscribe(frozenset({"a"})), play.world.now)
    calls = {each.call_id: each.value for each in one.core.events() if isinstance(each, CallDone)}
    assert "leaves the group" in str(calls[7][P0])
    assert calls.keys() == {7, 8, 9}
    play.kafka.produce(P0, 1)
    assert (0, 2, 1) in one.offsets()


def test_a_member_that_does_not_poll_leaves_the_group_and_keeps_its_locks() -> None:
    play = Play(members=1, lock_s=30, max_poll_interval_s=5.0)
    (one,) = play.members
    (part,) = one.poll().parts
    play.world.run(10)
    assert play.kafka.share.members == {}
    assert acknowledge(one, part, ACCEPT, 0) == [True]
    assert commit(one) == {P0: None}
    play.kafka.produce(P0, 1)
    assert one.offsets() == [(0, 1, 1)]


def test_a_member_that_waits_in_poll_stays() -> None:
    play = Play(members=1, records=0, max_poll_interval_s=5.0)
    (one,) = play.members
    assert one.offsets(60) == []
    assert play.kafka.share.members.keys() == {"m1"}
    beats = sum("Heartbeat" in each for each in play.kafka.wire)
    assert 55 <= beats <= 70 * 1000 / HEARTBEAT_MS


def disturb(kafka: ShareKafka, chance: random.Random) -> None:
    """Let a leader move, a session end, or an acknowledgement fail, with a small chance."""
    draw, node = chance.random(), chance.choice((1, 2))
    if draw < 0.1:
        kafka.move(P0, node)
    elif draw < 0.2:
        kafka.share.end_session(node, chance.choice(["m1", "m2", "m3"]))
    elif draw < 0.3:
        kafka.share.store_error = chance.choice((ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR))


@pytest.mark.parametrize("seed", range(4))
def test_despite_failures_every_record_is_accepted_and_nothing_is_held_in_the_end(seed: int) -> None:
    """Requests vanish, sessions end, leaders move, locks end; members work, renew and accept."""
    chance = random.Random(seed)
    play = Play(members=3, records=0, lock_s=3.0)
    jobs: list[tuple[ShareMember, Any, float]] = []

    for iteration in range(120):
        if iteration < 80:
            play.kafka.produce(P0, chance.randrange(3))
            disturb(play.kafka, chance)
        for member in play.members:
            for part in member.poll(0.02).parts:
                for offset in part.records.positions.offsets:
                    job = member.core.begin_work(P0, offset, part.delivery, lambda: None, play.world.now)
                    jobs.append((member, job, play.world.now + chance.random() * 6))
        for done in [each for each in jobs if each[2] <= play.world.now or iteration >= 118]:
            jobs.remove(done)
            done[0].core.end_work(done[1], ACCEPT, play.world.now)
        play.world.run(0.1)
    for _ in range(30):
        for member in play.members:
            accept_all(member)
        play.world.run(0.2)
    assert play.kafka.share.shares[P0].settled == set(range(play.kafka.ends[P0]))
    assert [member.core.held.count for member in play.members] == [0, 0, 0]
