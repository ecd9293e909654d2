"""A consumer as a whole, with a coordinator in memory that behaves as Kafka's, by a clock that jumps."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.events import (
    Assign,
    Commit,
    CommitRefused,
    FetchCommitted,
    LeaveGroup,
    ListOffsets,
    PartitionLostError,
    PartitionsLost,
    Pause,
    Resume,
    Seek,
    Subscribe,
    UpdateMetadata,
)
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import NOTHING, OffsetAndMetadata
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.world import FakeKafka, Member, World

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
JOINED = ["UNJOINED", "PREPARING_REBALANCE", "COMPLETING_REBALANCE", "ASSIGNING_PARTITIONS", "STABLE"]
EAGER = [
    "STABLE", "PREPARE_REVOCATION", "REVOKING_PARTITION", "PARTITION_REVOKED", "PREPARING_REBALANCE",
    "COMPLETING_REBALANCE", "ASSIGNING_PARTITIONS", "STABLE",
]  # fmt: skip
COOPERATIVE = [each for each in EAGER if each != "PREPARING_REBALANCE"]
QUIET = ["STABLE", "COMPLETING_REBALANCE", "ASSIGNING_PARTITIONS", "STABLE"]

PROTOCOLS = {
    "eager": {"assignors": ("range",)},
    "cooperative": {"assignors": ("cooperative-sticky",)},
    "consumer": {"group_protocol": "consumer"},
}
ALL = pytest.mark.parametrize("protocol", PROTOCOLS)
KEEPING = pytest.mark.parametrize("protocol", ["cooperative", "consumer"])


def world_of(protocol: str, **topics: int) -> World:
    return World(FakeKafka("consumer" if protocol == "consumer" else "classic", **(topics or {"p": 2})))


def alone(protocol: str, **options: object) -> tuple[World, Member]:
    """Return a world and its only member, which has both partitions."""
    world = world_of(protocol)
    member = world.member("a", **PROTOCOLS[protocol], **options).subscribe("p")
    world.until(lambda: member.core.flow.owned == {P0, P1} and member.chain()[-1] == "STABLE", [member])
    return world, member


def positions(member: Member) -> frozenset[TopicPartition]:
    return member.core.positions.assigned


def joining(world: World, protocol: str, **options: object) -> Member:
    return world.member("b", **PROTOCOLS[protocol], **options).subscribe("p")


def offsets(**numbers: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(name[0], int(name[1:])): OffsetAndMetadata(offset) for name, offset in numbers.items()}


# Chains of the proposal (R001-6)


@ALL
def test_a_first_join_ends_in_the_state_stable(protocol: str) -> None:
    _, member = alone(protocol)
    assert member.chain() == JOINED


def test_a_member_goes_through_the_states_of_an_eager_rebalance() -> None:
    world, a = alone("eager")
    b = joining(world, "eager")
    world.until(lambda: len(positions(a)) == len(positions(b)) == 1, [a, b])
    world.run(1, [a, b])
    assert a.chain() == [*JOINED, *EAGER[1:]]
    assert b.chain() == JOINED


@KEEPING
def test_a_member_goes_through_the_states_of_a_cooperative_rebalance(protocol: str) -> None:
    world, a = alone(protocol)
    b = joining(world, protocol)
    world.until(lambda: len(positions(a)) == len(positions(b)) == 1, [a, b])
    world.run(6, [a, b])
    chain = a.chain()[len(JOINED) - 1 :]
    assert chain[: len(COOPERATIVE)] == COOPERATIVE
    rest = chain[len(COOPERATIVE) - 1 :]
    assert rest in ([["STABLE"], QUIET] if protocol == "consumer" else [QUIET]), "the member joins once more"


@ALL
def test_released_partitions_are_committed_before_the_member_joins_again(protocol: str) -> None:
    world, a = alone(protocol, auto_commit_interval_s=100.0)
    for place in (P0, P1):
        world.kafka.produce(place, 10)
    world.until(lambda: len(a.got) == 20, [a])
    world.kafka.wire.clear()
    b = joining(world, protocol)
    world.until(lambda: len(positions(b)) == 1, [a, b])
    (partition,) = positions(b)
    assert world.kafka.committed[partition] == 10
    reported = [each for each in world.kafka.wire if each in ("a OffsetCommit", "a JoinGroup")]
    joins = [place for place, each in enumerate(reported) if each == "a JoinGroup"]
    assert reported.index("a OffsetCommit") < (joins[-1] if joins else len(reported))


# Delayed revoke


@ALL
def test_a000_1_a_revoke_is_reported_by_one_poll_and_completed_by_the_next(protocol: str) -> None:
    world, a = alone(protocol)
    b = joining(world, protocol)
    for _ in range(400):
        world.run(0.05, [b])
        outcome = a.poll()
        if outcome.to_be_revoked:
            break
    retained_partitions = NOTHING if protocol == "eager" else positions(a) - outcome.to_be_revoked
    assert len(outcome.to_be_revoked) == (2 if protocol == "eager" else 1)
    assert positions(a) == {P0, P1}, "still assigned"
    a.poll()
    assert positions(a) == retained_partitions


@ALL
def test_a000_2_a_delayed_partition_is_not_reassigned_and_the_others_are_still_read(protocol: str) -> None:
    world, a = alone(protocol)
    b = joining(world, protocol)
    world.until(lambda: bool(a.core.ledger.next), [a, b])
    delayed = a.core.ledger.next
    retained_partitions = {P0, P1} - delayed
    for _ in range(20):
        assert a.core.delay_revoke(delayed, world.now)
        for place in (P0, P1):
            world.kafka.produce(place, 1)
        world.run(0.2)
        a.poll()
        b.poll()
        assert not positions(b) & delayed
    assert [place for place, _ in a.got].count(P0 if P0 in retained_partitions else P1) >= (
        19 if retained_partitions else 0
    )
    a.handle(Commit(1, {place: OffsetAndMetadata(7) for place in delayed}))
    world.run(0.1)
    assert a.results()[1].value is None, "commits of what is delayed are taken"
    assert not [each for each in a.got if each[0] in delayed], "no more work for what has to drain"
    world.until(lambda: bool(positions(b) & delayed), [a, b])
    world.until(lambda: any(place in delayed for place, _ in b.got), [a, b])
    assert min(offset for place, offset in b.got if place in delayed) == 7, "the first after our last commit"
    got = [each for each in (*a.got, *b.got) if each[0] in delayed]
    assert len(got) == len(set(got)), "nothing twice"


@pytest.mark.parametrize(("protocol", "deadline_s"), [("eager", 54.0), ("consumer", 54.0), ("cooperative", 80.0)])
def test_a000_4_at_the_deadline_what_is_delayed_is_lost_and_the_member_stays(protocol: str, deadline_s: float) -> None:
    world, a = alone(protocol, max_poll_interval_s=60.0, max_revoke_delay_s=80.0)
    b = joining(world, protocol, max_poll_interval_s=60.0)
    world.until(lambda: bool(a.core.ledger.next), [a, b])
    learned, delayed = world.now, a.core.ledger.next
    while a.core.delay_revoke(delayed, world.now) and world.now < learned + 100:
        world.run(0.5)
        a.poll()
        b.poll()
    assert deadline_s - 2 < world.now - learned < deadline_s + 1.5
    outcomes = [a.poll(), a.poll()]
    if not a.of(PartitionsLost)[0].partitions & a.core.ledger.lost_now:
        assert outcomes[-1].lost == NOTHING, "reported once"
    assert a.of(PartitionsLost)[0].partitions == delayed
    a.handle(Commit(5, {**offsets(p0=3), **offsets(p1=3)}))
    world.until(lambda: 5 in a.results(), [a, b])
    refused = a.results()[5].value
    assert isinstance(refused, CommitRefused)
    assert all(isinstance(refused.errors[place], PartitionLostError) for place in delayed - positions(a))
    world.until(lambda: len(positions(a)) == len(positions(b)) == 1, [a, b])
    assert not [each for each in world.kafka.log if "fenced" in each or "in time" in each]


def test_a000_5_what_is_given_back_is_read_on_and_nothing_completes_later() -> None:
    """In a cooperative group; a KIP-848 coordinator returns nothing before it is acknowledged."""
    protocol = "cooperative"
    world, a = alone(protocol)
    world.kafka.produce(P0, 3)
    world.kafka.produce(P1, 3)
    world.until(lambda: len(a.got) == 6, [a])
    b = joining(world, protocol)
    world.until(lambda: bool(a.core.ledger.next), [a, b])
    (delayed,) = a.core.ledger.next
    assert a.core.delay_revoke({delayed}, world.now)
    b.handle(LeaveGroup(1))
    for _ in range(100):
        if not a.core.ledger.outstanding:
            break
        a.core.delay_revoke(a.core.ledger.next, world.now)
        world.run(0.2)
        a.poll()
    assert a.core.ledger.outstanding == NOTHING
    world.until(lambda: a.chain()[-1] == "STABLE", [a])
    world.kafka.produce(delayed, 2)
    world.until(lambda: (delayed, 4) in a.got, [a])
    assert [offset for place, offset in a.got if place == delayed] == [0, 1, 2, 3, 4], "from its position on"
    assert a.of(PartitionsLost) == []


@ALL
def test_a000_8_the_member_stays_in_the_group_far_beyond_the_session_timeout_while_it_delays(protocol: str) -> None:
    world, a = alone(protocol, max_poll_interval_s=300.0, session_timeout_s=10.0)
    b = joining(world, protocol, max_poll_interval_s=300.0)
    world.until(lambda: bool(a.core.ledger.next), [a, b])
    for _ in range(300):
        assert a.core.delay_revoke(a.core.ledger.next, world.now)
        world.run(0.5)
        a.poll()
        b.poll()
    assert not [each for each in world.kafka.log if "expired" in each or "fenced" in each]


@ALL
def test_a000_10_leaving_while_delaying_commits_and_leaves_immediately(protocol: str) -> None:
    world, a = alone(protocol)
    b = joining(world, protocol)
    world.until(lambda: bool(a.core.ledger.next), [a, b])
    a.core.delay_revoke(a.core.ledger.next, world.now)
    a.handle(Commit(1, offsets(p0=4, p1=4)))
    a.handle(LeaveGroup(2))
    began = world.now
    world.until(lambda: 2 in a.results(), [b])
    assert world.now - began < 1
    assert a.results()[1].value is None
    assert world.kafka.committed == {P0: 4, P1: 4}
    assert a.chain()[-1] == "UNJOINED"
    assert any("left" in each for each in world.kafka.log)
    world.until(lambda: len(positions(b)) == 2, [b], seconds=320)


def test_a000_11_a_commit_that_a_new_generation_overtakes_is_sent_again_and_nothing_is_lost() -> None:
    """The commit is sent under generation 1, and arrives when the group has gone on to 2."""
    world, a = alone("cooperative")
    group = world.kafka.group

    def next_generation(_: object) -> None:
        group.generation += 1
        world.kafka.faults["OffsetCommit"] = []

    world.kafka.faults["OffsetCommit"] = [next_generation]
    real = a.core.membership.identity
    a.handle(Commit(1, offsets(p0=8)))
    a.core.membership._rejoin = "a test"
    world.run(0.0)
    world.until(lambda: 1 in a.results(), [a])
    assert a.results()[1].value is None
    assert a.of(PartitionsLost) == []
    assert a.core.membership.identity.generation > real.generation
    assert world.kafka.committed[P0] == 8


def test_a_position_is_not_looked_up_while_a_commit_of_it_is_under_way() -> None:
    """The committed offset would be older than the records that the application has."""
    world, a = alone("cooperative")
    a.handle(Commit(1, offsets(p0=5)))
    a.handle(Commit(2, offsets(p0=8)))
    a.core.positions.drop({P0})
    a.core.positions.assign({P0, P1})
    world.until(lambda: a.core.positions[P0].offset is not None, [a])
    assert a.core.positions[P0].offset == 8, "and not 5, behind which 8 had to wait"


def test_delay_with_automatic_commits_is_refused_before_anything_else() -> None:
    _, a = alone("cooperative", auto_commit_interval_s=5.0)
    with pytest.raises(ConfigurationError, match="polled is not processed"):
        a.core.delay_revoke({P0}, 0.0)


def test_a_group_is_needed_to_subscribe_and_to_commit() -> None:
    member = World(FakeKafka(p=1)).member("a", group_id=None)
    with pytest.raises(ConfigurationError, match=r"Commit needs a group\.id"):
        member.handle(Commit(1, offsets(p0=1)))
    with pytest.raises(ConfigurationError, match=r"Subscribe needs a group\.id"):
        member.subscribe("p")


# Requests and their receivers


def test_a001_1_without_a_group_no_coordinator_is_looked_up() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a", group_id=None)
    a.handle(Assign(frozenset({P0, P1})))
    world.kafka.produce(P0, 3)
    world.until(lambda: len(a.got) == 3, [a])
    assert {each.split()[1] for each in world.kafka.wire} == {"Metadata", "ListOffsets", "Fetch"}
    assert a.core.coordinator_trace.state.value == "initialized"


def test_a001_2_the_first_commit_looks_up_the_coordinator_once() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a")
    a.handle(Commit(1, offsets(p0=3)))
    a.handle(Commit(2, offsets(p1=4)))
    world.until(lambda: len(a.results()) == 2, [])
    assert [each.split()[1] for each in world.kafka.wire] == ["FindCoordinator", "OffsetCommit"]
    chain = [state.value for state in a.core.coordinator_trace.chain()]
    assert chain == ["down", "initialized", "coordinator_discovery", "stable"]


def test_a001_3_with_the_coordinator_down_it_is_looked_up_with_pauses_and_no_commit_is_lost() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a")
    a.handle(Commit(1, offsets(p0=1)))
    world.until(lambda: 1 in a.results(), [])
    world.kafka.down.add(1)
    world.kafka.wire.clear()
    a.handle(Commit(2, offsets(p0=2)))
    world.run(10)
    tries = len(world.kafka.wire)
    assert 5 < tries < 30, "about one a second, after the first few"
    world.kafka.coordinator = 2
    world.until(lambda: 2 in a.results(), [])
    assert world.kafka.commits == [("a", P0, 1), ("a", P0, 2)], "once each"


@ALL
def test_a001_5_heartbeats_go_on_while_the_application_does_not_acknowledge(protocol: str) -> None:
    world, a = alone(protocol, session_timeout_s=10.0)
    b = joining(world, protocol)
    world.until(lambda: bool(a.core.flow.revoking), [b])
    world.run(30, [b])
    assert a.chain()[-1] == "REVOKING_PARTITION"
    assert not [each for each in world.kafka.log if "expired" in each]


@ALL
def test_a001_6_who_does_not_poll_leaves_and_joins_again_with_the_next_poll(protocol: str) -> None:
    world, a = alone(protocol, max_poll_interval_s=60.0)
    world.run(61)
    assert a.chain()[-1] == "UNJOINED"
    assert world.kafka.group.members == {}
    assert [each.partitions for each in a.of(PartitionsLost)] == [{P0, P1}]
    world.kafka.wire.clear()
    world.run(30)
    assert world.kafka.wire == [], "nothing until somebody polls"
    assert a.poll().lost == {P0, P1}
    world.until(lambda: positions(a) == {P0, P1}, [a])
    assert a.poll().lost == NOTHING


def test_a001_9_a_slow_application_means_no_fetches_and_flat_memory() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a", group_id=None, buffer_bytes_max=4000, max_partition_fetch_bytes=1000, fetch_max_bytes=2000)
    a.handle(Assign(frozenset({P0, P1})))
    for _ in range(300):
        world.kafka.produce(P0, 10)
        world.kafka.produce(P1, 10)
    world.run(5)
    fetches = len(world.kafka.wire)
    assert a.core.fetches.buffered_bytes < 8000
    world.run(60)
    assert len(world.kafka.wire) == fetches
    world.until(lambda: len(a.got) == 6000, [a])
    assert a.got.count((P0, 0)) == a.got.count((P1, 2999)) == 1


def test_a_partition_that_grows_is_assigned_and_one_without_a_leader_is_waited_for() -> None:
    world, a = alone("cooperative", metadata_max_age_s=5.0)
    world.kafka.topics["p"] = 3
    world.kafka.leaderless.add(TopicPartition("p", 2))
    world.until(lambda: len(positions(a)) == 3, [a])
    world.run(20, [a])
    world.kafka.leaderless.clear()
    world.kafka.produce(TopicPartition("p", 2), 1)
    world.until(lambda: (TopicPartition("p", 2), 0) in a.got, [a])


# The other calls


@ALL
def test_a_pattern_is_all_topics_that_match_also_those_that_come_later(protocol: str) -> None:
    world = world_of(protocol, orders=1, other=1)
    a = world.member("a", **PROTOCOLS[protocol], metadata_max_age_s=5.0)
    a.handle(Subscribe(frozenset(), "or.*"))
    world.until(lambda: positions(a) == {TopicPartition("orders", 0)}, [a])
    world.kafka.topics["organs"] = 1
    world.kafka.ids["organs"] = b"organs".ljust(16, b"x")
    if protocol == "consumer":
        world.kafka.group.names[world.kafka.ids["organs"]] = "organs"
    world.until(lambda: positions(a) == {TopicPartition("orders", 0), TopicPartition("organs", 0)}, [a])


@ALL
def test_unsubscribing_commits_what_was_consumed_and_then_leaves(protocol: str) -> None:
    world, a = alone(protocol, auto_commit_interval_s=100.0)
    world.kafka.produce(P0, 7)
    world.until(lambda: len(a.got) == 7, [a])
    world.kafka.wire.clear()
    a.handle(Subscribe(frozenset()))
    world.until(lambda: world.kafka.group.members == {}, [])
    reported = [each.split()[1] for each in world.kafka.wire if "Fetch" not in each]
    assert reported[:2] == ["OffsetCommit", "ConsumerGroupHeartbeat" if protocol == "consumer" else "LeaveGroup"]
    assert world.kafka.committed[P0] == 7
    assert positions(a) == NOTHING
    a.subscribe("p")
    world.kafka.produce(P0, 1)
    world.until(lambda: len(a.got) == 8, [a])
    assert a.got[-1] == (P0, 7)


def test_a_seek_moves_the_position_and_a_paused_partition_is_not_read() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a", group_id=None)
    a.handle(Assign(frozenset({P0, P1})))
    world.kafka.produce(P0, 5)
    world.kafka.produce(P1, 5)
    world.until(lambda: len(a.got) == 10, [a])
    a.handle(Pause(frozenset({P0})))
    a.handle(Seek(P0, 3))
    a.handle(Seek(P1, 4))
    world.run(2, [a])
    assert a.got[10:] == [(P1, 4)]
    a.handle(Resume(frozenset({P0})))
    world.run(2, [a])
    assert a.got[11:] == [(P0, 3), (P0, 4)]


def test_queries_have_one_response_each() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a")
    world.kafka.produce(P0, 5)
    world.kafka.committed[P0] = 3
    a.handle(FetchCommitted(1, frozenset({P0, P1})))
    a.handle(ListOffsets(2, {P0: -1, P1: -2}))
    a.handle(UpdateMetadata())
    world.until(lambda: len(a.results()) == 2, [])
    assert a.results()[1].value == {P0: OffsetAndMetadata(3), P1: None}
    assert {place: offset_entry.offset for place, offset_entry in a.results()[2].value.items()} == {P0: 5, P1: 0}


def test_another_assignment_drops_what_was_read_ahead() -> None:
    world = World(FakeKafka(p=2))
    a = world.member("a", group_id=None)
    a.handle(Assign(frozenset({P0})))
    world.kafka.produce(P0, 5)
    world.kafka.produce(P1, 5)
    world.run(1)
    a.handle(Assign(frozenset({P1})))
    world.until(lambda: len(a.got) == 5, [a])
    assert {place for place, _ in a.got} == {P1}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_poll_that_nothing_depends_on_only_says_that_the_application_is_alive(protocol: str) -> None:
    """Not the first, none that releases or reports anything, none that commits: then it takes `begin_poll`."""
    world = world_of(protocol)
    member = world.member("a", **PROTOCOLS[protocol], max_poll_interval_s=60.0).subscribe("p")
    assert not member.core.begin_poll_quietly(world.now)
    world.until(lambda: member.core.flow.owned == {P0, P1} and member.chain()[-1] == "STABLE", [member])
    for _ in range(100):
        assert member.core.begin_poll_quietly(world.now)
        world.run(3.0)
    assert member.chain()[-1] == "STABLE"
    ledger = member.core.ledger
    ledger.request([P0], 99)
    assert ledger.unreported == {P0}
    assert member.core.begin_poll_quietly(world.now)
    assert member.end_poll().to_be_revoked == {P0}
    assert not member.core.begin_poll_quietly(world.now)
    for _ in range(20):
        ledger.delay([P0])
        assert member.core.begin_poll_quietly(world.now), "what is delayed is not completed"
        assert ledger.next == {P0}
    ledger.add_lost([P0])
    assert member.end_poll().lost == {P0}
    assert member.core.begin_poll_quietly(world.now)
    assert member.end_poll().lost == NOTHING


def test_a_poll_at_which_a_commit_is_due_is_not_quiet() -> None:
    """Before it returns other records: those are not processed, and may not be among what is committed."""
    world, member = alone("cooperative", auto_commit_interval_s=5.0)
    member.core.begin_poll(world.now)
    assert member.core.begin_poll_quietly(world.now)
    assert member.core.begin_poll_quietly(world.now + 4.9)
    assert not member.core.begin_poll_quietly(world.now + 5.0)
