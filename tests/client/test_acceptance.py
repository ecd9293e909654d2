"""Acceptance cases of delayed revokes and of the two sides, on brokers of 3.9.1 and 4.3.0 (A000-*, A001-*).

A000-1, 2, 3 and A001-4, 10 stand in test_real_brokers.py, tests/consumer/test_brokers.py and tests/consumer.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.network_task import WokenUp
from kafka_share_proxy.client.notes import COORDINATOR_STATE, PARTITIONS_LOST, ConsumerNote
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.events import PartitionLostError
from kafka_share_proxy.consumer.groups.states import CoordinatorState
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.tapped import Tap
from tests.client.test_real_brokers import EARLIEST, Fresh, create, kafka, produce, read

__all__ = ["kafka"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

COOPERATIVE: dict[str, Any] = {"assignors": ("cooperative-sticky",), "heartbeat_interval_s": 0.3, **EARLIEST}
EAGER: dict[str, Any] = {"assignors": ("range",), **EARLIEST}
POLLS_MAX = 5000
"""Maximum number of polls of another member."""


class World:
    """A topic of two partitions with ten records each, and a group."""

    def __init__(self, kafka: Cluster, fresh: Fresh) -> None:
        self.kafka = kafka
        self.partitions = create(kafka, fresh("topic"), 2)
        self.group = fresh("group")
        for each in self.partitions:
            produce(kafka, each, range(10))

    def member(self, **options: Any) -> Any:
        return open_consumer(
            self.kafka.bootstrap, group=self.group, topics=[self.partitions[0].topic], **{**COOPERATIVE, **options}
        )


@pytest.fixture
def world(kafka: Cluster, fresh: Fresh) -> World:
    return World(kafka, fresh)


async def polling(consumer: Consumer) -> None:
    for _ in range(POLLS_MAX):
        await consumer.poll(0.2)


async def until_assigned(consumer: Consumer, count: int) -> None:
    with trio.fail_after(60):
        while len(consumer.assignment) != count:
            await consumer.poll(0.2)


async def until_going(consumer: Consumer) -> Partitions:
    with trio.fail_after(60):
        while not (going := (await consumer.poll(0.2)).to_be_revoked):
            pass
    return going


async def test_a000_4_at_the_deadline_a_delayed_partition_is_lost_and_the_other_is_committed(world: World) -> None:
    """R000-1, 5 and 11: what is lost leaves both lists, cannot be delayed, and is not committed."""
    async with world.member(max_revoke_delay_s=1.0) as first:
        await until_assigned(first, 2)
        async with world.member() as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            going = await until_going(first)
            (retained_partition,) = first.assignment - going
            lost: Partitions = frozenset()
            with trio.fail_after(30):
                while not lost and first.delay_revoke(going):
                    lost = (await first.poll(0.1)).lost
            if not lost:
                lost = (await first.poll(0.1)).lost
            assert (lost, first.lost, first.to_be_revoked) == (going, going, frozenset())
            assert first.delay_revoke(going) is False
            assert (await first.poll(0)).lost == frozenset()
            with pytest.raises(PartitionLostError):
                await first.commit({**dict.fromkeys(going, 3), retained_partition: 4})
            assert await first.committed(world.partitions) == {
                retained_partition: OffsetAndMetadata(4),
                **dict.fromkeys(going),
            }
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("kafka", "protocol"),
    [("3.9.1", "eager"), ("4.3.0", "eager"), ("3.9.1", "cooperative"), ("4.3.0", "consumer")],
    indirect=["kafka"],
)
async def test_a_short_limit_of_delays_is_granted_in_full_with_a_long_poll_interval(
    world: World, protocol: str
) -> None:
    """Issue 25.19: the margin of max.poll.interval (30 s) was subtracted from the application's own limit (3 s)."""
    options = {"eager": EAGER, "cooperative": COOPERATIVE, "consumer": {"group_protocol": "consumer"}}[protocol]
    async with world.member(**options, max_revoke_delay_s=3.0) as first:
        await read(first, 20)
        async with world.member(**options) as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            going = await until_going(first)
            returned = trio.current_time()
            await trio.sleep(1.0)
            assert first.delay_revoke(going)
            assert (await first.poll(0)).lost == frozenset()
            await first.commit(dict.fromkeys(going, 7))
            lost: Partitions = frozenset()
            with trio.fail_after(30):
                while not lost and first.delay_revoke(going):
                    lost = (await first.poll(0.1)).lost
                lost |= (await first.poll(0)).lost
                assert lost == going
                assert trio.current_time() - returned > 2.0, "granted until the limit"
                while len(first.assignment) != 1 or len(second.assignment) != 1:
                    await first.poll(0.1)
            assert await first.committed(going) == dict.fromkeys(going, OffsetAndMetadata(7)), "nothing is lost"
            nursery.cancel_scope.cancel()


async def test_a000_5_a_partition_that_is_handed_back_is_read_on_and_nothing_completes_later(world: World) -> None:
    async with world.member() as first:
        await read(first, 20)
        async with trio.open_nursery() as nursery:
            leaves = trio.Event()

            async def comes_and_goes() -> None:
                async with world.member() as second:
                    with trio.move_on_after(60) as scope:
                        nursery.start_soon(cancelled_by, leaves, scope)
                        await polling(second)

            nursery.start_soon(comes_and_goes)
            going = await until_going(first)
            assert first.delay_revoke(going)
            leaves.set()
            with trio.fail_after(60):
                while going:
                    assert first.delay_revoke(going)
                    going = (await first.poll(0.1)).to_be_revoked
        assert len(first.assignment) == 2
        for each in world.partitions:
            produce(world.kafka, each, range(5))
        await read(first, 10)
        assert (len(first.assignment), first.lost) == (2, frozenset())


async def cancelled_by(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def test_a000_6_a_partition_of_which_nothing_was_returned_goes_without_a_delay(world: World) -> None:
    """R000-9: who calls nothing of KIP-983 gives up what the group wants with the next poll."""
    async with world.member(max_poll_records=1) as first:
        await until_assigned(first, 2)
        async with world.member() as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            going = await until_going(first)
            with trio.fail_after(20):
                while len(second.assignment) != 1:
                    await first.poll(0.1)
            assert second.assignment == going
            nursery.cancel_scope.cancel()


async def test_a000_7_an_eager_member_delays_joining_commits_and_gives_up_at_the_deadline(world: World) -> None:
    """Until the deadline commits of the old generation are accepted; then the remaining partitions are lost, and the
    group continues.
    """
    async with world.member(**EAGER, max_poll_interval_s=4.0) as first:
        await read(first, 20)
        async with world.member(**EAGER) as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            going = await until_going(first)
            assert going == set(world.partitions)
            lost: Partitions = frozenset()
            offset = 0
            with trio.fail_after(30):
                while not lost and first.delay_revoke(going):
                    offset += 1
                    if not first.lost:
                        await first.commit({world.partitions[0]: offset})
                    assert second.assignment == frozenset() or first.lost
                    result = await first.poll(0.1)
                    lost |= result.lost
                lost |= (await first.poll(0.1)).lost
                while len(first.assignment) != 1 or len(second.assignment) != 1:
                    await first.poll(0.1)
            assert offset > 3
            assert lost == going
            nursery.cancel_scope.cancel()


class Hearing(RebalanceListener):
    """Notes in which call it hears of revocations."""

    def __init__(self) -> None:
        self.revoked: list[Partitions] = []

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        await trio.lowlevel.checkpoint()
        self.revoked.append(partitions)


async def test_a000_9_a_listener_is_called_in_the_poll_that_learned_of_it(world: World) -> None:
    """R000-9: as with Kafka's own clients."""
    listener = Hearing()
    async with world.member(listener=listener, revoke_in_same_poll=True) as first:
        await until_assigned(first, 2)
        async with world.member() as second, trio.open_nursery() as nursery:
            nursery.start_soon(polling, second)
            with trio.fail_after(60):
                while not listener.revoked:
                    result = await first.poll(0.2)
            assert result.to_be_revoked == frozenset()
            await until_assigned(first, 1)
            assert listener.revoked[0] == set(world.partitions) - first.assignment
            nursery.cancel_scope.cancel()


async def test_a000_10_who_closes_while_delaying_commits_and_leaves_immediately(world: World) -> None:
    tap, listener = Tap(), Hearing()
    async with world.member() as second, trio.open_nursery() as nursery:
        async with world.member(connect=tap, listener=listener, auto_commit_interval_s=None) as first:
            await read(first, 20)
            nursery.start_soon(polling, second)
            going = await until_going(first)
            assert first.delay_revoke(going)
            await first.commit()
            began = trio.current_time()
        assert trio.current_time() - began < 5
        assert tap.names.count("LeaveGroup") == 1
        assert frozenset().union(*listener.revoked) == set(world.partitions)
        await trio.lowlevel.checkpoint()
        with trio.fail_after(30):
            while len(second.assignment) != 2:  # noqa: ASYNC110 - another task polls it
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


async def test_a000_11_a_commit_that_a_rebalance_overtakes_is_made_and_nothing_is_lost(world: World) -> None:
    notes: list[ConsumerNote] = []
    async with world.member(**EAGER, observe=notes.append) as first:
        await until_assigned(first, 2)
        async with trio.open_nursery() as nursery:
            committed = [0]

            async def committing() -> None:
                for _ in range(POLLS_MAX):
                    held = first.assignment - first.to_be_revoked
                    if held:
                        partition = min(held)
                        try:
                            await first.commit({partition: committed[0] % 10})
                        except PartitionLostError:
                            assert partition not in first.assignment
                    committed[0] += 1
                    await trio.sleep(0.005)

            nursery.start_soon(committing)
            for _ in range(3):
                async with world.member(**EAGER) as second:
                    with trio.fail_after(60):
                        while len(second.assignment) != 1:
                            await first.poll(0.01)
                            await second.poll(0.01)
                await until_assigned(first, 2)
            nursery.cancel_scope.cancel()
    assert committed[0] > 20
    assert [note for note in notes if note.event == PARTITIONS_LOST] == []


async def test_a000_12_a_commit_works_during_a_poll_that_waits_and_two_polls_do_not(world: World) -> None:
    async with world.member() as consumer:
        await read(consumer, 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.poll, 60)
            await trio.sleep(0.2)
            with trio.fail_after(10):
                await consumer.commit()
            assert await consumer.committed(world.partitions) == dict.fromkeys(world.partitions, OffsetAndMetadata(10))
            with pytest.raises(trio.BusyResourceError):
                await consumer.poll(1)
            nursery.cancel_scope.cancel()


async def test_a001_1_and_2_the_coordinator_is_looked_up_when_the_first_commit_needs_it(world: World) -> None:
    """R001-4"""
    tap, notes = Tap(), list[ConsumerNote]()
    async with open_consumer(
        world.kafka.bootstrap, partitions=world.partitions, connect=tap, **EARLIEST
    ) as without_group:
        await read(without_group, 20)
        assert without_group.state().coordinator is CoordinatorState.INITIALIZED
    assert {"Metadata", "ListOffsets", "Fetch"} == set(tap.names)
    tap = Tap()
    async with open_consumer(world.kafka.bootstrap, group=world.group, connect=tap, observe=notes.append) as consumer:
        with trio.fail_after(30):
            await consumer.commit({world.partitions[0]: 7})
        states = [note.facts["after"] for note in notes if note.event == COORDINATOR_STATE]
        assert states == ["initialized", "coordinator_discovery", "stable"]
    assert [name for name in tap.names if name in ("FindCoordinator", "OffsetCommit")] == [
        "FindCoordinator",
        "OffsetCommit",
    ]


async def test_a001_6_who_does_not_poll_leaves_and_the_next_poll_reports_the_loss_and_joins(world: World) -> None:
    """R001-2 and R000-12: heartbeats alone keep no member in the group, and no partition is held back for longer."""
    tap = Tap()
    async with world.member(connect=tap, max_poll_interval_s=1.0) as consumer:
        await until_assigned(consumer, 2)
        with trio.fail_after(30):
            while "LeaveGroup" not in tap.names:  # noqa: ASYNC110 - of the other task
                await trio.sleep(0.1)
        assert (await consumer.poll(0.5)).lost == set(world.partitions)
        await until_assigned(consumer, 2)
        assert tap.names.count("LeaveGroup") == 1


async def test_a001_7_calls_of_several_tasks_each_end_once_on_a_real_group(world: World) -> None:
    """R001-1 and R000-8: each call has its one result, and commits of a partition are made in order."""
    async with world.member() as consumer:
        await until_assigned(consumer, 2)
        ended: list[int] = []

        async def calls(seed: int) -> None:
            partition: TopicPartition = world.partitions[seed % 2]
            for iteration in range(50):
                await consumer.commit({partition: iteration % 10})
                consumer.seek(partition, iteration % 10)
                consumer.pause([partition])
                consumer.resume([partition])
                ended.append(seed)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for seed in range(10):
                    nursery.start_soon(calls, seed)
        assert len(ended) == 500
        await consumer.commit(dict.fromkeys(world.partitions, 9))
        assert await consumer.committed(world.partitions) == dict.fromkeys(world.partitions, OffsetAndMetadata(9))


async def test_a001_8_wakeup_and_cancellation_end_a_poll_immediately_and_lose_no_record(world: World) -> None:
    """R001-10"""
    async with world.member() as consumer:
        await read(consumer, 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(called_after, 0.2, consumer.wakeup)
            with pytest.raises(WokenUp):
                await consumer.poll(60)
        produce(world.kafka, world.partitions[0], range(5))
        began = trio.current_time()
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.poll(60)
        assert scope.cancelled_caught
        assert trio.current_time() - began < 1  # 50 ms, but for what else this machine does
        records = await read(consumer, 5)
        assert [record.offset for record in records] == list(range(10, 15))


async def called_after(seconds: float, call: Any) -> None:
    await trio.sleep(seconds)
    call()


async def test_a001_9_a_slow_application_stops_the_fetches(kafka: Cluster, fresh: Fresh) -> None:
    """R001-9"""
    (partition,) = create(kafka, fresh("topic"))
    produce(kafka, partition, range(20_000), **{"linger.ms": 5, "batch.num.messages": 200})
    tap = Tap()
    options = {
        "partitions": [partition],
        "connect": tap,
        "buffer_bytes_max": 50_000,
        "max_partition_fetch_bytes": 10_000,
    }
    async with open_consumer(kafka.bootstrap, **options, **EARLIEST) as consumer:
        await consumer.poll(10, max_records=1)
        await trio.sleep(0.5)
        fetches = tap.names.count("Fetch")
        await trio.sleep(1.5)
        assert tap.names.count("Fetch") == fetches
        assert consumer._core.fetches.buffered_bytes < 100_000
        assert len(await read(consumer, 19_999)) == 19_999
