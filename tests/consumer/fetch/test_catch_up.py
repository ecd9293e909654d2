"""The child flow alone: its ranges, how they shrink, and its reports."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.consumer.events import CatchUpChanged, Commit
from kafka_share_proxy.consumer.fetch.offset_requests import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kafka_share_proxy.consumer.partitions import Flow
from kafka_share_proxy.consumer.requests import FailureKind, Lane, RequestFailure
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.world import FakeKafka, Member, World

P = TopicPartition("a", 0)


def behind(text: str = "", committed: int = 70, end: int = 120) -> tuple[World, Member]:
    kafka = FakeKafka(a=1)
    for first in range(0, end, 10):
        kafka.produce(P, min(10, end - first))
    kafka.committed[P], kafka.texts[P] = committed, text
    world = World(kafka)
    member = world.member("a", enable_parallel_rebalance=True)
    member.subscribe("a")
    return world, member


def read_all(world: World, member: Member) -> list[int]:
    world.until(lambda: P in member.core.catch_up, [member])
    world.until(lambda: not member.core.catch_up.remaining(), [member])
    return [offset for _, offset in member.got]


def tokens(member: Member) -> list[tuple[str, int]]:
    return [(str(each.token), each.remaining) for each in member.of(CatchUpChanged)]


def test_the_child_reads_over_its_own_connection_and_stops_at_the_end_of_its_range() -> None:
    world, member = behind()
    lanes: list[Lane] = []
    take = world.kafka.take

    def noted(who: str, request: Any, *rest: Any) -> None:
        if request.api == "Fetch":
            lanes.append(request.lane)
        take(who, request, *rest)

    world.kafka.take = noted  # type: ignore[method-assign]
    assert read_all(world, member) == list(range(70, 120))
    requested = lanes.count(Lane.CATCHING_UP)
    world.run(5, [member])
    assert lanes.count(Lane.CATCHING_UP) == requested
    assert Lane.DATA in lanes[-3:]
    assert tokens(member) == [("70-119", 50), ("70-119", 0)]


def test_nothing_between_two_ranges_is_delivered_again() -> None:
    world, member = behind("ic/1;84-91,103-104")
    assert read_all(world, member) == [*range(70, 84), *range(92, 103), *range(105, 120)]


def test_one_flow_that_fails_does_not_keep_the_other() -> None:
    """A node that sends no response to the child serves the main flow; the child continues at its offset."""
    world, member = behind()
    refused = [0]

    def no_child(request: Any) -> Any:
        if request.lane is not Lane.CATCHING_UP or refused[0] >= 5:
            return None
        refused[0] += 1
        return RequestFailure(FailureKind.DISCONNECTED, "cut")

    world.kafka.faults["Fetch"] = [no_child] * 200
    world.kafka.produce(P, 5)
    world.until(lambda: len(member.got) == 55, [member])
    offsets = [offset for _, offset in member.got]
    assert refused == [5]
    assert sorted(offsets) == list(range(70, 125))


@pytest.mark.parametrize("start", [75, 119, 120])
def test_deleted_records_shrink_the_range(start: int) -> None:
    world, member = behind()
    world.kafka.starts[P] = start
    assert read_all(world, member) == list(range(start, 120))
    assert (f"70-{start - 1}", 0) in tokens(member)
    assert member.core.to_commit(frozenset({P}))[P].offset == 120


def test_a_failed_request_for_the_log_start_is_repeated() -> None:
    world, member = behind()
    world.kafka.starts[P] = 100
    requested: list[int] = []

    def first_fails(request: Any) -> Any:
        requested.append(request.message.topics[0].partitions[0].timestamp)
        fails = requested == [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP]
        return RequestFailure(FailureKind.UNSUPPORTED_VERSION, "no") if fails else None

    world.kafka.faults["ListOffsets"] = [first_fails] * 20
    assert read_all(world, member) == list(range(100, 120))
    assert requested == [LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, EARLIEST_TIMESTAMP]


def test_the_child_of_a_lost_partition_ends() -> None:
    world, member = behind()
    world.until(lambda: P in member.core.catch_up, [member])
    member.core._drop(frozenset({P}))
    assert P not in member.core.catch_up
    assert member.core.catch_up.positions.assigned == frozenset()
    assert member.core.catch_up.fetches.buffered_bytes == 0


def test_without_the_mode_nothing_is_requested_and_nothing_jumps() -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(P, 120)
    kafka.committed[P] = 70
    world = World(kafka)
    member = world.member("a").subscribe("a")
    world.until(lambda: len(member.got) == 50, [member])
    assert not [line for line in kafka.wire if "ListOffsets" in line]
    assert not member.core.catch_up.is_alive
    assert member.core.positions[P].ranges is None


def test_a_lag_below_catch_up_lag_min_is_read_by_one_flow() -> None:
    world, _ = behind()
    world.members.clear()
    patient = world.member("b", enable_parallel_rebalance=True, catch_up_lag_min=51).subscribe("a")
    world.until(lambda: len(patient.got) == 50, [patient])
    assert not patient.core.catch_up.is_alive


def test_the_member_that_lost_everything_and_returned_begins_at_the_end_again() -> None:
    """R002-6 in one process: it falls out of the group, and what it had not committed is left to the same child."""
    world, member = behind()
    read_all(world, member)
    child = member.core.catch_up
    world.kafka.produce(P, 20)
    world.until(lambda: member.core.positions[P].offset == 140, [member])
    member.core.handle(Commit(7, member.core.to_commit(frozenset({P}))), world.now)
    world.run(1, [member])
    assert world.kafka.committed[P] == 140
    world.kafka.produce(P, 30)
    world.until(lambda: member.core.positions[P].offset == 170, [member])
    world.run(member.options.max_poll_interval_s + 1)  # it does not poll: it leaves the group
    world.kafka.produce(P, 20)
    world.until(lambda: child.remaining() == {P: (OffsetSpan(140, 190),)}, [member])
    before = len(member.got)
    world.until(lambda: not child.remaining(), [member])
    assert [offset for _, offset in member.got[before:]] == list(range(140, 190))
    assert child is member.core.catch_up


def test_records_have_their_flow() -> None:
    world, member = behind()
    flows: set[tuple[Flow, int | None]] = set()
    end_poll = member.end_poll

    def noted(*args: Any) -> Any:
        outcome = end_poll(*args)
        flows.update((chunk.flow, chunk.until) for chunk in outcome.chunks)
        return outcome

    member.end_poll = noted  # type: ignore[method-assign]
    read_all(world, member)
    world.kafka.produce(P, 1)
    world.until(lambda: len(member.got) == 51, [member])
    assert flows == {(Flow.CHILD, 120), (Flow.MAIN, None)}
