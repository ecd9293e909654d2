"""Start positions of newly assigned partitions."""

from __future__ import annotations

import pytest
from kafka_share_proxy.consumer.events import BackgroundError, PositionFound
from kafka_share_proxy.consumer.options import ConfigurationError, ConsumerOptions
from kafka_share_proxy.consumer.requests import FailureKind, RequestFailure
from kafka_share_proxy.offsets.ranges import OFFSET_MAX, OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.world import FakeKafka, Member, World

P = TopicPartition("a", 0)


def world_of(committed: int | None = None, text: str = "", **options: object) -> tuple[World, Member]:
    kafka = FakeKafka(a=1)
    kafka.produce(P, 100)
    if committed is not None:
        kafka.committed[P], kafka.texts[P] = committed, text
    world = World(kafka)
    return world, world.member("a", **options).subscribe("a")


def test_reading_begins_at_the_committed_offset_and_skips_the_committed_ranges() -> None:
    world, member = world_of(40, "ic/1;40-44,90-94")
    world.until(lambda: len(member.got) == 50, [member])
    assert [offset for _, offset in member.got] == [*range(45, 90), *range(95, 100)]
    assert member.core.positions[P].ranges == (OffsetSpan(45, 90), OffsetSpan(95, OFFSET_MAX))
    (event,) = member.of(PositionFound)
    assert (event.committed.offset, event.main_from) == (40, None)


@pytest.mark.parametrize("text", ["mine", "ic/2;50-60", "ic/1;60-50"])
def test_commit_metadata_without_readable_ranges_change_nothing(text: str) -> None:
    world, member = world_of(40, text)
    world.until(lambda: len(member.got) == 60, [member])
    assert member.of(BackgroundError) == []


def test_without_an_offset_and_without_a_reset_policy_it_is_an_error_with_each_poll() -> None:
    world, member = world_of(auto_offset_reset="none")
    world.until(lambda: len(member.of(BackgroundError)) >= 3, [member])
    assert "auto.offset.reset is none; seek" in str(member.of(BackgroundError)[0].error)
    requested = sum("OffsetFetch" in line for line in world.kafka.wire)
    world.run(30)  # no poll
    assert sum("OffsetFetch" in line for line in world.kafka.wire) <= requested + 1
    member.core.positions.seek(P, 98)
    world.until(lambda: len(member.got) == 2, [member])
    assert member.core.positions[P].problem is None


@pytest.mark.parametrize("mode", [False, True])
def test_permanent_errors_are_reported_and_the_requests_repeated(mode: bool) -> None:
    world, member = world_of(40, enable_parallel_rebalance=mode)
    api = "ListOffsets" if mode else "OffsetFetch"
    world.kafka.faults[api] = [lambda _: RequestFailure(FailureKind.UNSUPPORTED_VERSION, "no")]
    world.until(lambda: len(member.got) == 60, [member])
    (error,) = member.of(BackgroundError)
    assert error.partitions == {P}


def test_the_mode_needs_a_group_and_a_lag() -> None:
    with pytest.raises(ConfigurationError, match="needs a group"):
        ConsumerOptions(enable_parallel_rebalance=True)
    with pytest.raises(ConfigurationError, match="catch_up_lag_min=0: must be above 0"):
        ConsumerOptions(group_id="g", catch_up_lag_min=0)
