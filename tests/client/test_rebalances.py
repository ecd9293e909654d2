"""Rebalances as an application sees them, against scripted brokers in memory and a clock that jumps."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from kafka_share_proxy.consumer.events import PartitionLostError
from kafka_share_proxy.consumer.groups.states import CoordinatorState, RebalanceState
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.loop.boot_clock import SuspensionClock
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.application import read, until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
async def test_a_member_reads_commits_and_another_continues(group_protocol: str, autojump_clock: Clock) -> None:
    kafka = FakeKafka(group=group_protocol, a=2)
    kafka.produce(A0, 10)
    kafka.produce(A1, 10)
    options = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", "group_protocol": group_protocol}
    async with cluster(kafka) as brokers:
        async with brokers.consumer(**options) as reader:
            assert len(await read(reader, 20)) == 20
            assert reader.assignment == {A0, A1}
            assert reader.state()[:2] == (CoordinatorState.STABLE, RebalanceState.STABLE)
            await reader.commit()
            assert await reader.committed([A0, A1]) == {A0: OffsetAndMetadata(10), A1: OffsetAndMetadata(10)}
        kafka.produce(A0, 1)
        async with brokers.consumer(client_id="b", **options) as reader:
            assert await read(reader, 1) == [(0, 10)]


@pytest.mark.parametrize(
    "options",
    [{"assignors": ("cooperative-sticky",)}, {"group_protocol": "consumer"}, {"assignors": ("range",)}],
    ids=["cooperative", "consumer", "eager"],
)
async def test_a_revoke_is_reported_in_one_poll_and_completed_by_the_next(
    options: dict[str, Any], autojump_clock: Clock
) -> None:
    """A000-1, and A000-2 without its figures: what is delayed stays unassigned, and nothing is read twice."""
    kafka = FakeKafka(group=options.get("group_protocol", "classic"), a=2)
    both = {"group": "g", "topics": ["a"], "auto_offset_reset": "earliest", **options}
    async with cluster(kafka) as brokers, brokers.consumer(**both) as first:
        await until(first, lambda: first.assignment == {A0, A1})
        async with brokers.consumer(client_id="b", **both) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1, 300)
            going: Partitions = frozenset()
            while not going:
                going = (await first.poll(1)).to_be_revoked
            for _ in range(20):
                assert first.delay_revoke(going) is True
                result = await first.poll(0.1)
                assert result.to_be_revoked == going
                assert second.assignment == frozenset()
            retained_partitions = frozenset({A0, A1}) - going
            await first.commit(dict.fromkeys(going, 5))
            await until(first, lambda: len(first.assignment) == 1 and len(second.assignment) == 1)
            assert {*first.assignment, *second.assignment} == {A0, A1}
            if "assignors" not in options or options["assignors"] != ("range",):
                assert first.assignment == retained_partitions
            assert kafka.committed[min(going)] == 5


async def test_a_partition_lost_at_the_deadline_is_reported_once_and_cannot_be_committed(autojump_clock: Clock) -> None:
    """A000-4"""
    kafka = FakeKafka(a=2)
    both = {"group": "g", "topics": ["a"], "assignors": ("cooperative-sticky",), "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(max_revoke_delay_s=5.0, **both) as first:
        await until(first, lambda: first.assignment == {A0, A1})
        async with brokers.consumer(client_id="b", **both) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1, 300)
            going: Partitions = frozenset()
            while not going:
                going = (await first.poll(1)).to_be_revoked
            (retained_partition,) = frozenset({A0, A1}) - going
            began = trio.current_time()
            lost: Partitions = frozenset()
            while not lost and first.delay_revoke(going):
                lost = (await first.poll(0.5)).lost
            if not lost:  # the deadline passed between two polls: the next one reports it
                lost = (await first.poll(0.1)).lost
            assert 4.9 < trio.current_time() - began < 5.6
            assert (lost, first.delay_revoke(going)) == (going, False)
            assert (await first.poll(0)).lost == frozenset()
            with pytest.raises(PartitionLostError) as raised:
                await first.commit({**dict.fromkeys(going, 3), retained_partition: 4})
            assert len(raised.value.__notes__) == 1
            assert kafka.committed == {retained_partition: 4}


async def test_a_member_beyond_its_poll_interval_loses_everything_and_joins_again(autojump_clock: Clock) -> None:
    """A001-6"""
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    async with (
        cluster(kafka) as brokers,
        brokers.consumer(group="g", topics=["a"], auto_offset_reset="earliest", max_poll_interval_s=20.0) as reader,
    ):
        await read(reader, 1)
        await reader.poll(100)
        assert reader.assignment == {A0}, "a poll that waits long is no pause"
        await trio.sleep(21)
        assert (await reader.poll(1)).lost == {A0}
        await until(reader, lambda: reader.assignment == {A0})


async def test_the_next_poll_after_a_suspension_beyond_the_session_reports_the_loss_and_no_records(
    autojump_clock: Clock,
) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 10)
    suspended = [0.0]
    async with (
        cluster(kafka) as brokers,
        brokers.consumer(group="g", topics=["a"], auto_offset_reset="earliest") as one,
    ):
        one._network.clock = SuspensionClock(lambda: suspended[0])
        assert len((await one.poll(10, max_records=1)).records) == 1
        suspended[0] = 60.0
        result = await one.poll(0)
        assert (len(result.records), result.lost) == (0, {A0})


async def test_a_delay_after_a_suspension_beyond_its_deadline_is_refused(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=2)
    suspended = [0.0]
    both = {"group": "g", "topics": ["a"], "assignors": ("cooperative-sticky",), "session_timeout_s": 600.0}
    async with cluster(kafka) as brokers, brokers.consumer(max_revoke_delay_s=20.0, **both) as first:
        first._network.clock = SuspensionClock(lambda: suspended[0])
        await until(first, lambda: first.assignment == {A0, A1})
        async with brokers.consumer(client_id="b", **both) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1, 300)
            going: Partitions = frozenset()
            while not going:
                going = (await first.poll(1)).to_be_revoked
            assert first.delay_revoke(going)
            suspended[0] = 21.0
            assert first.delay_revoke(going) is False
            assert (await first.poll(0)).lost == going
            nursery.cancel_scope.cancel()
