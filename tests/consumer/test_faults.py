"""Faults and their consequences: one row of the table for each fault (A001-10), and any order of calls."""

from __future__ import annotations

import random
from typing import Any

import pytest
from kafka_share_proxy.consumer.events import (
    AckPartitionsAssigned,
    AckPartitionsRevoked,
    BackgroundError,
    Commit,
    FetchCommitted,
    LeaveGroup,
    PartitionsLost,
    Pause,
    Resume,
    Seek,
)
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure, UnsentRequest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.test_core import PROTOCOLS, alone, joining, offsets, positions
from tests.consumer.world import FakeKafka, Member, World

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)
ALL = pytest.mark.parametrize("protocol", PROTOCOLS)
APIS = {
    "eager": ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "ListOffsets", "Fetch", "Metadata"),
    "consumer": ("ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch", "ListOffsets", "Fetch", "Metadata"),
}
APIS["cooperative"] = APIS["eager"]


def lost(kind: FailureKind) -> Any:
    return lambda _: RequestFailure(kind)


def reads_on(world: World, member: Member) -> None:
    """Check that a member has both partitions, is stable, reads new records, and commits."""
    world.until(lambda: positions(member) == {P0, P1} and member.chain()[-1] == "STABLE", [member], 120)
    before = len(member.got)
    world.kafka.produce(P0, 1)
    world.kafka.produce(P1, 1)
    world.until(lambda: len(member.got) >= before + 2, [member])
    member.handle(Commit(999, offsets(p0=1, p1=1)))
    world.until(lambda: 999 in member.results(), [member])
    assert member.results()[999].value is None
    assert len(member.got) == len(set(member.got)), "no record twice"


@ALL
@pytest.mark.parametrize("kind", [FailureKind.DISCONNECTED, FailureKind.TIMED_OUT])
def test_a001_10_a_lost_response_of_any_api_is_got_over(protocol: str, kind: FailureKind) -> None:
    """The first request of each API has no response; whether it was carried out is not known."""
    kafka = FakeKafka("consumer" if protocol == "consumer" else "classic", p=2)
    for api in (*APIS[protocol], "FindCoordinator"):
        kafka.faults[api] = [lost(kind)]
    world = World(kafka)
    member = world.member("a", **PROTOCOLS[protocol]).subscribe("p")
    reads_on(world, member)
    world.run(10, [member])
    assert {api: left for api, left in kafka.faults.items() if left} == {}, "all have been met"
    assert member.of(PartitionsLost) == []


@ALL
def test_a001_10_a_connection_that_ends_while_it_reads_loses_no_record_and_repeats_none(protocol: str) -> None:
    world, member = alone(protocol)
    choose = random.Random(protocol)

    def sometimes(_: UnsentRequest) -> Any:
        return RequestFailure(FailureKind.DISCONNECTED) if choose.random() < 0.3 else None

    world.kafka.faults["Fetch"] = [sometimes] * 500
    for _ in range(50):
        world.kafka.produce(P0, 3)
        world.run(0.3, [member])
    world.until(lambda: len(member.got) == 150, [member])
    assert member.got == [(P0, offset) for offset in range(150)]


def test_a001_10_a_stale_generation_means_the_loss_is_reported_once_and_the_member_joins_again() -> None:
    world, member = alone("cooperative")
    world.kafka.group.generation += 5
    world.until(lambda: bool(member.of(PartitionsLost)), [member])
    assert [each.partitions for each in member.of(PartitionsLost)] == [{P0, P1}]
    reads_on(world, member)


@ALL
def test_a001_10_a_coordinator_that_moved_is_found_and_nothing_is_lost(protocol: str) -> None:
    world, member = alone(protocol)
    world.kafka.coordinator = 2
    member.handle(Commit(1, offsets(p0=3)))
    world.until(lambda: 1 in member.results(), [member])
    world.run(20, [member])
    assert member.of(PartitionsLost) == []
    assert world.kafka.wire.count("a FindCoordinator") == 2
    reads_on(world, member)


@ALL
def test_a001_10_metadata_without_a_leader_are_waited_for_without_a_tight_loop(protocol: str) -> None:
    kafka = FakeKafka("consumer" if protocol == "consumer" else "classic", p=2)
    kafka.leaderless.add(P0)
    world = World(kafka)
    member = world.member("a", **PROTOCOLS[protocol]).subscribe("p")
    world.run(20, [member])
    assert kafka.wire.count("a Metadata") < 60
    kafka.leaderless.clear()
    reads_on(world, member)


@ALL
def test_a001_10_a_callback_that_raises_or_is_cancelled_is_acknowledged_all_the_same(protocol: str) -> None:
    """The application side acknowledges whatever the callback did: the rebalance continues."""
    world, member = alone(protocol)
    other = joining(world, protocol)
    world.until(lambda: bool(member.core.flow.revoking), [other])
    member.handle(AckPartitionsRevoked(member.core.flow.rebalance_id, member.core.flow.revoking))
    world.until(lambda: len(positions(other)) == 1, [member, other])
    assert member.core.ledger.outstanding == frozenset()


@ALL
def test_a001_10_a_duplicate_acknowledgement_changes_nothing(protocol: str) -> None:
    world, member = alone(protocol)
    chain = member.chain()
    for rebalance_id in range(5):
        member.handle(AckPartitionsAssigned(rebalance_id))
        member.handle(AckPartitionsRevoked(rebalance_id, frozenset({TopicPartition("q", 1)})))
    assert member.chain() == chain
    reads_on(world, member)


@ALL
@pytest.mark.parametrize("after", [0.0, 0.006, 0.012, 0.016, 0.022, 0.03, 0.05])
def test_a001_10_leaving_at_any_moment_of_a_join_leaves_no_member(protocol: str, after: float) -> None:
    world = World(FakeKafka("consumer" if protocol == "consumer" else "classic", p=2))
    member = world.member("a", **PROTOCOLS[protocol]).subscribe("p")
    member.poll()
    world.run(after)
    member.handle(LeaveGroup(1))
    world.until(lambda: 1 in member.results(), [])
    assert member.chain()[-1] == "UNJOINED"
    assert positions(member) == frozenset()
    world.run(50)
    assert world.kafka.group.members == {}


@ALL
def test_the_group_refuses_the_member_and_it_says_why_once(protocol: str) -> None:
    world, member = alone(protocol)
    api = "ConsumerGroupHeartbeat" if protocol == "consumer" else "Heartbeat"

    def barred(request: UnsentRequest) -> Any:
        response = type(request.message).__name__.replace("Request", "Response")
        return registry.message(response)(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    world.kafka.faults[api] = [barred] * 9
    world.run(30, [member])
    (error,) = member.of(BackgroundError)
    assert "GROUP_AUTHORIZATION_FAILED" in str(error.error)
    assert [each.partitions for each in member.of(PartitionsLost)] == [{P0, P1}]
    world.kafka.wire.clear()
    world.run(30, [member])
    assert f"a {api}" not in world.kafka.wire


def test_a_coordinator_that_may_not_be_looked_up_ends_calls_and_is_queried_again_by_the_next() -> None:
    world = World(FakeKafka(p=2))
    member = world.member("a")

    def barred(_: UnsentRequest) -> Any:
        response = registry.message("FindCoordinatorResponse")
        return response(coordinators=[response.Coordinator(key="g", error_code=30, host="")])

    world.kafka.faults["FindCoordinator"] = [barred]
    member.handle(Commit(1, offsets(p0=1)))
    member.handle(FetchCommitted(2, frozenset({P0})))
    world.until(lambda: len(member.results()) == 2, [])
    assert "GROUP_AUTHORIZATION_FAILED" in str(member.results()[1].value.errors[P0])
    assert "GROUP_AUTHORIZATION_FAILED" in str(member.results()[2].error)
    world.run(10)
    assert world.kafka.wire == ["a FindCoordinator"]
    member.handle(Commit(3, offsets(p0=1)))
    world.until(lambda: 3 in member.results(), [])
    assert member.results()[3].value is None


@pytest.mark.parametrize("api", ["OffsetFetch", "ListOffsets"])
def test_a_position_that_may_not_be_found_is_tried_again_with_pauses(api: str) -> None:
    def barred(request: UnsentRequest) -> Any:
        if api == "ListOffsets":
            response = registry.message("ListOffsetsResponse")
            listed = response.ListOffsetsPartitionResponse(partition_index=0, error_code=29)
            topic = response.ListOffsetsTopicResponse(name="p", partitions=[listed])
            return response(topics=[topic])
        response = registry.message("OffsetFetchResponse")
        return response(groups=[response.OffsetFetchResponseGroup(group_id="g", error_code=30)])

    kafka = FakeKafka(p=1)
    kafka.faults[api] = [barred] * 1000
    world = World(kafka)
    member = world.member("a", assignors=("range",)).subscribe("p")
    world.run(20, [member])
    assert 10 < kafka.wire.count(f"a {api}") < 40
    assert "AUTHORIZATION_FAILED" in str(member.of(BackgroundError)[0].error)


def test_a_repeated_error_waits_for_the_application_once() -> None:
    world, member = alone("cooperative", auto_offset_reset="none", max_poll_interval_s=1000.0)
    nowhere = ["p-0: nothing is committed, and auto.offset.reset is none; seek"]
    assert [str(each.error) for each in member.of(BackgroundError)[:1]] == nowhere
    world.run(1)  # the last poll's request
    member.of(BackgroundError)
    member.events.clear()
    member.handle(Seek(P0, 10_000))
    world.kafka.wire.clear()
    world.run(60)
    assert world.kafka.wire.count("a Fetch") > 100
    errors = [str(each.error) for each in member.of(BackgroundError)]
    assert errors == ["p-0: offset 10000 is out of range, and auto.offset.reset is none; seek"]


@pytest.mark.parametrize("seed", range(3))
@ALL
def test_a001_7_a_thousand_commits_seeks_and_pauses_each_end_once_and_in_order(protocol: str, seed: int) -> None:
    world, member = alone(protocol)
    choose = random.Random(f"{protocol} {seed}")
    called: dict[TopicPartition, list[int]] = {P0: [], P1: []}
    for call_id in range(1, 1001):
        places = [each for each in (P0, P1) if choose.random() < 0.7] or [P0]
        expected = {each: OffsetAndMetadata(choose.randrange(10_000)) for each in places}
        for each, offset in expected.items():
            called[each].append(offset.offset)
        member.handle(Commit(call_id, expected))
        kind = choose.randrange(4)
        if kind < 3:
            member.handle((Seek(P0, call_id), Pause(frozenset({P1})), Resume(frozenset({P1})))[kind])
        if choose.random() < 0.05:
            world.kafka.faults.setdefault("OffsetCommit", []).append(lost(FailureKind.DISCONNECTED))
        if choose.random() < 0.3:
            world.run(choose.random() * 0.05, [member])
    world.until(lambda: len(member.results()) == 1000, [member])
    assert {each.value for each in member.results().values()} == {None}
    for place in (P0, P1):
        wire = [offset for _, at, offset in world.kafka.commits if at == place]
        remaining = iter(called[place])
        assert all(offset in remaining for offset in wire), "in the order of the calls"
        assert wire[-1] == called[place][-1] == world.kafka.committed[place]
