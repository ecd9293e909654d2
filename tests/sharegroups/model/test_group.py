"""Share group membership: who is in, with which epoch and which partitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.strategies import integers, none, one_of, sampled_from, sets
from kafka_share_proxy.sharegroups.model import group as module
from kafka_share_proxy.sharegroups.model.group import Heartbeat, ShareGroup, TopicInfo
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits, effective
from kafka_share_proxy.wire.errors import ErrorCode

LIMITS = BrokerShareLimits()
SETTINGS = effective({}, LIMITS)
A, B = b"a" * 16, b"b" * 16
TOPICS = {"orders": TopicInfo(A, 3), "payments": TopicInfo(B, 1)}


class Play:
    """A share group, its cluster and a clock; members speak by name."""

    def __init__(self, limits: BrokerShareLimits = LIMITS, **stored: str) -> None:
        self.group = ShareGroup("group")
        self.topics = dict(TOPICS)
        self.limits = limits
        self.settings = effective({name.replace("_", "."): value for name, value in stored.items()}, limits)
        self.now = 100.0
        self.held: set[tuple[str, bytes, int]] = set()
        """(member, topic id, partition) of which the member holds records."""

    def beat(self, member: str, epoch: int, topics=None, **more):
        beat = Heartbeat(member_id=member, member_epoch=epoch, topics=topics, **more)
        return self.group.heartbeat(beat, self.topics, self.settings, self.limits, self.now, self.holds)

    def holds(self, group_id: str, *of):
        assert group_id == "group"
        return of in self.held

    def join(self, member: str, *topics: str, **more):
        return self.beat(member, 0, topics or ("orders",), **more)


def test_the_first_join_returns_epoch_two_and_everything():
    """Item 52: positive epoch, the heartbeat interval, an assignment; the group is Stable with equal epochs."""
    play = Play()
    reply = play.join("m")
    assert reply.error is ErrorCode.NONE
    assert (reply.member_epoch, reply.heartbeat_interval_s) == (2, 5.0)
    assert reply.assignment == {A: (0, 1, 2)}
    described = play.group.describe()
    assert (described.state, described.epoch, described.assignment_epoch) == ("Stable", 2, 2)


def test_a_heartbeat_without_news_has_no_assignment():
    """Item 58."""
    play = Play()
    epoch = play.join("m").member_epoch
    reply = play.beat("m", epoch)
    assert (reply.error, reply.member_epoch, reply.assignment) == (ErrorCode.NONE, epoch, None)


def test_naming_topics_gets_the_assignment_even_if_nothing_changed():
    """A request with SubscribedTopicNames gets everything; the epoch stays."""
    play = Play()
    epoch = play.join("m").member_epoch
    reply = play.beat("m", epoch, ("orders",))
    assert (reply.member_epoch, reply.assignment) == (epoch, {A: (0, 1, 2)})


def test_a_joining_member_is_assigned_immediately():
    """Item 54: within the interval too, for its next heartbeat is 5 s away; both have 3 partitions between them."""
    play = Play()
    first = play.join("a")
    second = play.join("b")
    assert second.member_epoch == first.member_epoch + 1
    theirs = play.beat("a", first.member_epoch)
    assert theirs.member_epoch == second.member_epoch
    assert sorted((*second.assignment[A], *theirs.assignment[A])) == [0, 1, 2]
    assert abs(len(second.assignment[A]) - len(theirs.assignment[A])) == 1


def test_a_large_group_is_assigned_anew_once_an_interval():
    """Item 54 where assigning is work: who joins within the interval has no partitions until its next heartbeat."""
    play = Play()
    play.topics["orders"] = TopicInfo(A, module.AT_ONCE_MAX - 1)
    first = play.join("a")
    second = play.join("b")
    assert (second.member_epoch, second.assignment) == (first.member_epoch, {})
    assert play.beat("a", 2).assignment is None
    play.now += 1.0
    mine = play.beat("b", 2)
    theirs = play.beat("a", 2)
    assert mine.member_epoch == theirs.member_epoch == 3
    assert sorted((*mine.assignment[A], *theirs.assignment[A])) == list(range(module.AT_ONCE_MAX - 1))
    assert abs(len(mine.assignment[A]) - len(theirs.assignment[A])) == 1


def test_a_partition_to_be_revoked_is_kept_until_its_records_are_settled_and_acquires_nothing():
    """A member that holds records of a lost partition is notified only once it holds none: otherwise clients drop
    them.
    """
    play = Play()
    play.join("a")
    play.held = {("a", A, number) for number in range(3)}
    gained = play.join("b").assignment[A]
    assert play.group.withdrawn_from("a", play.now) == ()
    waiting = play.beat("a", 2)
    assert (waiting.member_epoch, waiting.assignment) == (3, None)
    assert set(play.group.withdrawn_from("a", play.now)) == {(A, number) for number in gained}
    assert play.group.describe().members[0].assignment == {A: (0, 1, 2)}
    play.held.clear()
    play.now += 5
    given_up = play.beat("a", 3)
    assert sorted((*given_up.assignment[A], *gained)) == [0, 1, 2]
    assert play.beat("a", 3).assignment is None


def test_what_was_given_up_gives_nothing_to_a_fetch_that_is_late():
    """A fetch may be under way while the member hears of it; after a lock's time the partition is like any other."""
    play = Play()
    play.join("a")
    gained = play.join("b").assignment[A]
    assert gained[0] not in play.beat("a", 2).assignment[A]
    play.now += play.settings.lock_duration_s - 1
    play.beat("a", 3)
    assert set(play.group.withdrawn_from("a", play.now)) == {(A, number) for number in gained}
    play.now += 1
    assert not play.group.withdrawn_from("a", play.now)
    play.beat("a", 3)
    assert not play.group.members["a"].withdrawn


def test_a_member_that_never_settles_loses_the_partition_after_the_time_of_a_lock():
    """Renewing for ever does not keep a partition."""
    play = Play()
    play.join("a")
    play.held = {("a", A, number) for number in range(3)}
    gained = play.join("b").assignment[A]
    waited = 0.0
    while (assignment := play.beat("a", play.group.members["a"].epoch).assignment) is None:
        play.now += 5
        play.beat("b", 3)
        waited += 5
        assert waited <= play.settings.lock_duration_s
    assert waited == play.settings.lock_duration_s
    assert sorted((*assignment[A], *gained)) == [0, 1, 2]
    assert play.beat("a", 3).assignment is None


def test_a_reassigned_partition_is_no_longer_withdrawn():
    """The other member left before the first had settled: nothing changes for it, and it is given records again."""
    play = Play()
    play.join("a")
    play.held = {("a", A, number) for number in range(3)}
    play.join("b")
    play.beat("a", 2)
    assert play.group.withdrawn_from("a", play.now)
    play.beat("b", -1)
    play.now += 1
    back = play.beat("a", 3)
    assert (back.member_epoch, back.assignment) == (4, None)
    assert play.group.withdrawn_from("a", play.now) == ()


def test_a_topic_that_a_member_no_longer_subscribes_to_is_released_immediately():
    """It said so itself; and of a deleted topic there is nothing to settle."""
    play = Play()
    play.join("m", "orders", "payments")
    play.held = {("m", A, 0), ("m", B, 0)}
    assert play.beat("m", 2, ("payments",)).assignment == {B: (0,)}
    del play.topics["payments"]
    play.now += 1
    assert play.beat("m", 3).assignment == {}
    assert play.group.withdrawn_from("m", play.now) == ()
    assert play.group.withdrawn_from("nobody", play.now) == ()


def test_without_interval_the_second_member_is_assigned_immediately():
    """Item 55 with share.assignment.interval.ms=0: one partition, two members, both get it."""
    play = Play(share_assignment_interval_ms="0")
    assert play.join("a", "payments").assignment == {B: (0,)}
    assert play.join("b", "payments").assignment == {B: (0,)}


def test_a_topic_that_does_not_exist_gives_an_empty_assignment_until_it_does():
    """Item 53."""
    play = Play()
    first = play.join("m", "later")
    assert (first.error, first.assignment) == (ErrorCode.NONE, {})
    play.topics["later"] = TopicInfo(b"c" * 16, 2)
    play.now += 5
    reply = play.beat("m", first.member_epoch)
    assert reply.member_epoch > first.member_epoch
    assert reply.assignment == {b"c" * 16: (0, 1)}


def test_a_leaving_member_hands_its_partitions_over_and_may_come_back():
    """Item 56: the response has -1, the other gets everything; the same id may join again."""
    play = Play(share_assignment_interval_ms="0")
    play.join("a")
    play.join("b")
    left = play.beat("a", -1)
    assert (left.error, left.member_epoch, left.heartbeat_interval_s, left.assignment) == (
        ErrorCode.NONE,
        -1,
        0.0,
        None,
    )
    assert play.beat("b", 3).assignment == {A: (0, 1, 2)}
    assert play.join("a").error is ErrorCode.NONE


def test_another_subscription_changes_the_assignment_immediately():
    """Item 57: only the new list, also where the interval does not allow a new assignment yet."""
    play = Play()
    epoch = play.join("m").member_epoch
    assert play.beat("m", epoch, ("payments",)).assignment == {B: (0,)}
    play.topics["orders"] = TopicInfo(A, module.AT_ONCE_MAX)
    early = play.beat("m", epoch + 1, ("orders",))
    assert (early.member_epoch, early.assignment) == (epoch + 1, {})
    play.now += 1
    late = play.beat("m", early.member_epoch)
    assert late.assignment == {A: tuple(range(module.AT_ONCE_MAX))}


def test_the_size_limit_holds_for_new_members_only():
    """Item 59: 81 for a third member, members continue, and a place that gets free is given."""
    play = Play(BrokerShareLimits.check({"group.share.max.size": 2}))
    play.join("a")
    play.join("b")
    refused = play.join("c")
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.join("a").error is ErrorCode.NONE
    assert play.beat("d", 5).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    play.beat("b", -1)
    assert play.join("c").error is ErrorCode.NONE


def test_a_session_expires_without_heartbeats():
    """Item 60: at the timeout the member is gone, its epoch is unknown, and it may join again."""
    play = Play()
    play.join("a")
    play.now += 40
    play.join("b")
    assert play.group.next_deadline() <= 145.0
    assert play.group.expire(144.9) == ()
    assert play.group.expire(145.0) == ("a",)
    play.now = 145.0
    assert play.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.beat("b", 3).assignment == {A: (0, 1, 2)}
    assert play.join("a").error is ErrorCode.NONE


def test_each_heartbeat_starts_the_session_anew():
    """A member that beats stays; the next deadline is never later than the true one."""
    play = Play()
    play.join("a")
    play.now += 40
    play.beat("a", 2)
    assert play.group.expire(145.0) == ()
    assert play.group.next_deadline() == 185.0
    assert play.group.expire(185.0) == ("a",)
    assert play.group.next_deadline() == math.inf
    assert play.group.state == "Empty"


def test_an_epoch_ahead_is_fenced_and_epoch_zero_brings_everything_back():
    """Item 61."""
    play = Play()
    play.join("m")
    assert play.beat("m", 9).error is ErrorCode.FENCED_MEMBER_EPOCH
    again = play.join("m")
    assert (again.member_epoch, again.assignment) == (2, {A: (0, 1, 2)})


def test_the_previous_epoch_is_taken_older_ones_are_not():
    """A response with a new epoch may have been lost; older epochs are fenced."""
    play = Play(share_assignment_interval_ms="0")
    play.join("a")
    play.join("b")
    assert play.beat("a", 2).member_epoch == 3
    assert play.beat("a", 2).member_epoch == 3
    play.beat("b", -1)
    assert play.beat("a", 3).member_epoch == 4
    assert play.beat("a", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert play.beat("a", 3).member_epoch == 4


def test_unknown_members_get_an_error():
    """Item 62, second half: 25 for an epoch above zero and for leaving."""
    play = Play()
    play.join("a")
    for epoch in (5, -1):
        reply = play.beat("stranger", epoch)
        assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert "stranger" in reply.message


@pytest.mark.parametrize(("epoch", "lost", "code"), [(5, False, 69), (5, True, 25), (-1, False, 69), (-1, True, 69)])
def test_an_unknown_group_is_not_found_unless_a_restart_may_have_lost_it(epoch, lost, code):
    """Item 62, first half; with memory state a member with an epoch must join again instead."""
    beat = Heartbeat(member_id="m", member_epoch=epoch)
    assert module.unknown_group("group", beat, lost_state_possible=lost).error == code


@pytest.mark.parametrize(
    ("group_id", "more"),
    [
        ("", {"member_epoch": 0, "topics": ("t",)}),
        ("g", {"member_epoch": 0, "topics": None}),
        ("g", {"member_epoch": 0, "topics": ()}),
        ("g", {"member_epoch": -2}),
        ("g", {"member_epoch": 3, "rack_id": ""}),
    ],
)
def test_heartbeats_no_group_can_take(group_id, more):
    """Item 63 and the empty group id."""
    assert module.request_mistake(group_id, Heartbeat(member_id="m", **more))


def test_heartbeats_any_group_can_take():
    """Joining with topics, going on without, leaving."""
    for more in ({"member_epoch": 0, "topics": ("t",)}, {"member_epoch": 3}, {"member_epoch": -1}):
        assert module.request_mistake("g", Heartbeat(member_id="m", **more)) is None


def test_more_partitions_are_given_out():
    """Item 65: a topic that grew bumps the epoch, and heartbeats bring the new partitions."""
    play = Play()
    play.join("m")
    play.topics["orders"] = TopicInfo(A, 5)
    play.now += 1
    reply = play.beat("m", 2)
    assert play.group.epoch == 3
    assert (reply.member_epoch, reply.assignment) == (3, {A: (0, 1, 2, 3, 4)})


def test_a_change_of_other_topics_is_no_change():
    """Only subscribed topics count."""
    play = Play()
    play.join("m")
    play.topics["payments"] = TopicInfo(B, 9)
    play.beat("m", 2)
    assert play.group.epoch == 2


def test_a_topic_made_anew_is_another_topic():
    """The same name with another id replaces the old partitions; a deleted one takes them away."""
    play = Play()
    play.join("m")
    play.now += 1
    play.topics["orders"] = TopicInfo(b"z" * 16, 3)
    assert play.beat("m", 2).assignment == {b"z" * 16: (0, 1, 2)}
    play.now += 1
    del play.topics["orders"]
    assert play.beat("m", 3).assignment == {}


def test_an_empty_group_starts_again_without_waiting():
    """After the last member left, the next one is assigned immediately, with a higher epoch."""
    play = Play()
    play.join("a")
    play.beat("a", -1)
    described = play.group.describe()
    assert (described.state, described.epoch, described.assignment_epoch) == ("Empty", 3, 2)
    reply = play.join("a")
    assert (reply.member_epoch, reply.assignment) == (4, {A: (0, 1, 2)})


def test_only_empty_groups_may_be_deleted():
    """Item 69: 68 with members."""
    play = Play()
    assert play.group.deletion_error() is ErrorCode.NONE
    play.join("a")
    assert play.group.deletion_error() is ErrorCode.NON_EMPTY_GROUP
    play.beat("a", -1)
    assert play.group.deletion_error() is ErrorCode.NONE
    play.group.dead = True
    assert play.group.state == "Dead"


def test_a_description_shows_each_member():
    """Item 67: assignor simple, members sorted, each with topics, epoch, client and partitions."""
    play = Play(share_assignment_interval_ms="0")
    play.join("b", "payments", "orders", client_id="java", client_host="/127.0.0.1")
    play.join("a", "orders", rack_id="r1")
    described = play.group.describe()
    assert described.assignor == "simple"
    first, second = described.members
    assert (first.member_id, first.rack_id, first.topics, first.member_epoch) == ("a", "r1", ("orders",), 3)
    assert (second.client_id, second.client_host, second.topics) == ("java", "/127.0.0.1", ("orders", "payments"))
    assert play.group.subscribed_topics() == {"orders", "payments"}
    play.beat("b", -1)
    assert play.group.subscribed_topics() == {"orders"}


def test_a_rack_sent_once_is_kept():
    """Only the join contains RackId."""
    play = Play()
    play.join("m", rack_id="r1")
    play.beat("m", 2)
    assert play.group.describe().members[0].rack_id == "r1"


NAMES = [f"m{number}" for number in range(5)]


class AnyHistory(RuleBasedStateMachine):
    """Members come, go, fall silent and change their mind while topics grow; the group stays consistent."""

    @initialize(interval=sampled_from(["0", "1000"]))
    def start(self, interval):
        self.play = Play(BrokerShareLimits.check({"group.share.max.size": 4}), share_assignment_interval_ms=interval)
        self.epochs: dict[str, int] = {}
        self.highest = 1

    def on_heartbeat_response(self, member, reply):
        if reply.error is ErrorCode.NONE and reply.member_epoch >= 0:
            assert reply.member_epoch >= self.epochs.get(member, 0)
            self.epochs[member] = reply.member_epoch
        elif reply.error is not ErrorCode.FENCED_MEMBER_EPOCH:
            self.epochs.pop(member, None)

    @rule(member=sampled_from(NAMES), topics=sets(sampled_from(["orders", "payments", "nowhere"]), min_size=1))
    def join(self, member, topics):
        self.on_heartbeat_response(member, self.play.join(member, *topics))

    @rule(member=sampled_from(NAMES), topics=one_of(none(), sets(sampled_from(["orders", "payments"]))))
    def beat(self, member, topics):
        epoch = self.epochs.get(member, 1)
        self.on_heartbeat_response(member, self.play.beat(member, epoch, None if topics is None else tuple(topics)))

    @rule(member=sampled_from(NAMES))
    def leave(self, member):
        self.play.beat(member, -1)
        self.epochs.pop(member, None)

    @rule(seconds=integers(0, 50))
    def wait(self, seconds):
        self.play.now += seconds
        due = [m.member_id for m in self.play.group.members.values() if m.deadline <= self.play.now]
        assert not due or self.play.group.next_deadline() <= self.play.now
        assert list(self.play.group.expire(self.play.now)) == sorted(due)
        for member in due:
            self.epochs.pop(member, None)

    @rule(partitions=integers(1, 9))
    def grow(self, partitions):
        self.play.topics["orders"] = TopicInfo(A, partitions)

    @rule()
    def settle(self):
        """Once everybody has said something after the interval, every subscribed partition has a subscriber."""
        self.play.now += 1
        self.play.group.expire(self.play.now)
        for _ in range(2):
            for member in list(self.play.group.members):
                self.on_heartbeat_response(member, self.play.beat(member, self.play.group.members[member].epoch))
        members = self.play.group.members.values()
        assert {member.epoch for member in members} <= {self.play.group.epoch}
        for name, info in self.play.topics.items():
            subscribers = [member for member in members if name in member.topics]
            assigned_partitions = {
                number for member in subscribers for number in member.assigned.get(info.topic_id, ())
            }
            assert assigned_partitions == (set(range(info.partitions)) if subscribers else set())

    @invariant()
    def consistent(self):
        group = self.play.group
        assert group.epoch >= self.highest
        self.highest = group.epoch
        assert group.assignment_epoch <= group.epoch
        assert len(group.members) <= 4
        assert group.subscribed_topics() == set().union(*(m.topics for m in group.members.values()))
        for member in group.members.values():
            assert member.previous_epoch <= member.epoch <= group.epoch
            names = {info.topic_id: name for name, info in self.play.topics.items()}
            assert all(names.get(topic_id) in member.topics for topic_id in member.assigned)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
