"""The calls of an application, against scripted brokers in memory and a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.network_task import ConsumerClosed, WokenUp
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.events import CallTimedOut, ConsumerError, PartitionLostError
from kafka_share_proxy.consumer.fetch.offset_requests import NoOffsetForPartition
from kafka_share_proxy.consumer.groups.states import CoordinatorState, RebalanceState
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions
from kafka_share_proxy.loop.boot_clock import SuspensionClock
from kafka_share_proxy.wire.values import Address, TopicPartition

from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock


def offsets(result: Any) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in result.records]


async def read(consumer: Consumer, count: int, timeout_s: float = 60) -> list[tuple[int, int]]:
    """Poll until this many records are returned; fails if they do not arrive."""
    got: list[tuple[int, int]] = []
    with trio.move_on_after(timeout_s):
        while len(got) < count:
            got += offsets(await consumer.poll(1))
    assert len(got) == count
    return got


async def until(consumer: Consumer, condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Poll until something is so."""
    with trio.move_on_after(timeout_s):
        while not condition():
            await consumer.poll(0.1)
    assert condition()


# Without a group


async def test_assigned_partitions_are_read_from_the_reset_policy_on(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=2)
    kafka.produce(A0, 10)
    kafka.produce(A1, 5)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0, A1], auto_offset_reset="earliest") as reader:
        got = await read(reader, 15)
        assert sorted(got) == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
        kafka.produce(A1, 2)
        assert await read(reader, 2) == [(1, 5), (1, 6)]
        assert [await reader.position(each) for each in (A0, A1)] == [10, 7]
        assert "FindCoordinator" not in brokers.requests
        assert reader.state().coordinator is CoordinatorState.INITIALIZED


async def test_records_carry_everything(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 3)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        records = (await reader.poll(5)).records
        assert [record.value for record in records] == [b"0", b"1", b"2"]
        assert (records[0].topic, records[-1].offset, records[1].key) == ("a", 2, None)
        assert [record.offset for record in records.of(A0)] == [0, 1, 2]
        assert records.next_offsets() == {A0: OffsetAndMetadata(3, leader_epoch=5)}
        assert records.partitions == {A0}


async def test_seek_pause_and_resume(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=2)
    kafka.produce(A0, 10)
    kafka.produce(A1, 10)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0, A1], auto_offset_reset="earliest") as reader:
        await read(reader, 20)
        reader.seek(A0, 7)
        assert await read(reader, 3) == [(0, 7), (0, 8), (0, 9)]
        reader.pause([A0])
        reader.seek(A0, 0)
        reader.seek(A1, 9)
        assert await read(reader, 1) == [(1, 9)]
        assert reader.paused == {A0}
        assert offsets(await reader.poll(5)) == []
        reader.resume([A0])
        assert await read(reader, 10) == [(0, n) for n in range(10)]


async def test_offsets_by_time_begin_and_end(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=2)
    kafka.produce(A0, 10)
    async with cluster(kafka) as brokers, brokers.consumer() as reader:
        assert await reader.beginning_offsets([A0, A1]) == {A0: 0, A1: 0}
        assert await reader.end_offsets([A0, A1]) == {A0: 10, A1: 0}
        offsets_by_time = await reader.offsets_for_times({A0: 5})
        assert offsets_by_time[A0] is not None


# Waiting


async def test_a_poll_ends_at_its_timeout(autojump_clock: Clock) -> None:
    async with cluster(FakeKafka(a=1)) as brokers, brokers.consumer(partitions=[A0]) as reader:
        began = trio.current_time()
        assert offsets(await reader.poll(3)) == []
        assert trio.current_time() == pytest.approx(began + 3)
        assert offsets(await reader.poll(0)) == []
        assert trio.current_time() == pytest.approx(began + 3)


async def test_two_polls_in_parallel_are_refused_and_commit_during_a_poll_works(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    async with (
        cluster(kafka) as brokers,
        brokers.consumer(group="g", partitions=[A0]) as reader,
        trio.open_nursery() as n,
    ):
        n.start_soon(reader.poll, 60)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError, match="another task polls"):
            await reader.poll(1)
        await reader.commit({A0: 4})
        assert kafka.committed == {A0: 4}
        n.cancel_scope.cancel()


async def test_wakeup_interrupts_the_poll_that_waits_or_the_next(autojump_clock: Clock) -> None:
    async with cluster(FakeKafka(a=1)) as brokers, brokers.consumer(partitions=[A0]) as reader:
        async with trio.open_nursery() as nursery:

            async def wake() -> None:
                await trio.sleep(7)
                reader.wakeup()

            nursery.start_soon(wake)
            began = trio.current_time()
            with pytest.raises(WokenUp):
                await reader.poll(60)
            assert trio.current_time() - began < 7.05
        reader.wakeup()
        with pytest.raises(WokenUp):
            await reader.poll(60)
        assert offsets(await reader.poll(1)) == []


async def test_iteration_returns_record_by_record_and_continues_where_it_ended(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 5)
    got = []
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        async for record in reader:
            got.append(record.offset)
            if len(got) == 2:
                break
        async for record in reader:
            got.append(record.offset)
            if len(got) == 5:
                break
    assert got == [0, 1, 2, 3, 4]


# Cancellation: test_public_calls.py has every await of the public API


async def test_a_cancelled_poll_loses_no_record(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        got: list[tuple[int, int]] = []
        for step in range(200):
            kafka.produce(A0, 3)
            with trio.move_on_after((step % 20) / 1000):
                got += offsets(await reader.poll(1))
        while len(got) < 600:
            got += offsets(await reader.poll(5))
        assert got == [(0, n) for n in range(600)]


async def test_a_cancelled_commit_still_reaches_the_group(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", partitions=[A0]) as reader:
        with trio.move_on_after(0) as scope:
            await reader.commit({A0: 3})
        assert scope.cancelled_caught
        await reader.commit({A0: 9})
        assert kafka.commits == [("a", A0, 9)] or kafka.commits == [("a", A0, 3), ("a", A0, 9)]
        assert (await reader.committed([A0]))[A0] == OffsetAndMetadata(9)


# In a group


async def test_the_first_commit_looks_up_the_coordinator_once(autojump_clock: Clock) -> None:
    """A001-2, and A001-1 before it: a consumer without a group looks up no coordinator."""
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", partitions=[A0]) as reader:
        reader.seek(A0, 0)
        await read(reader, 1)
        await reader.commit()
        await reader.commit({A0: 1})
        assert brokers.requests.count("FindCoordinator") == 1
        kinds = [name for name in brokers.requests if name in ("FindCoordinator", "OffsetCommit")]
        assert sorted(kinds) == ["FindCoordinator", "OffsetCommit", "OffsetCommit"]
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        await read(reader, 1)
        assert {*brokers.requests} == {"Metadata", "ListOffsets", "Fetch"}


async def test_a_commit_waits_until_the_coordinator_is_back_and_retries_with_pauses(autojump_clock: Clock) -> None:
    """A001-3"""
    kafka = FakeKafka(a=1)
    patient = {"group": "g", "partitions": [A0], "api_timeout_s": 90.0}
    async with cluster(kafka) as brokers, brokers.consumer(**patient) as reader:
        await reader.commit({A0: 1})
        address = Address("kafka", 9091)
        coordinator = brokers.net.brokers.pop(address)
        brokers.nodes[1].cut()
        dialled = len(brokers.net.dialled)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.commit, {A0: 2})
            await trio.sleep(60)
            assert kafka.committed == {A0: 1}
            assert 30 < len(brokers.net.dialled) - dialled < 200, "at least reconnect.backoff.max.ms / 2 between two"
            brokers.net.brokers[address] = coordinator
        assert [offset for _, _, offset in kafka.commits] == [1, 2]


async def test_a_commit_that_timed_out_is_made_once_the_coordinator_is_back(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    async with cluster(kafka) as brokers, brokers.consumer(group="g", partitions=[A0], api_timeout_s=5.0) as reader:
        await reader.commit({A0: 1})
        address = Address("kafka", 9091)
        coordinator = brokers.net.brokers.pop(address)
        brokers.nodes[1].cut()
        for _ in range(3):
            began = trio.current_time()
            with pytest.raises(CallTimedOut, match="commit: no result within 5 s; cannot use node 1: kafka:9091"):
                await reader.commit({A0: 2})
            assert trio.current_time() - began == pytest.approx(5)
        with pytest.raises(CallTimedOut, match="looking up committed offsets: no result within 5 s"):
            await reader.committed([A0])
        brokers.net.brokers[address] = coordinator
        await trio.sleep(2)
        assert kafka.committed == {A0: 2}
        assert await reader.committed([A0]) == {A0: OffsetAndMetadata(2)}


async def test_a_fetch_of_many_bytes_delays_no_heartbeat(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    async with (
        cluster(kafka) as brokers,
        brokers.consumer(
            group="g", topics=["a"], session_timeout_s=6.0, heartbeat_interval_s=2.0, auto_offset_reset="earliest"
        ) as reader,
    ):
        await until(reader, lambda: reader.assignment == {A0})
        for node in brokers.nodes.values():
            node.fetch_s = 25.0
        for _ in range(100):
            assert (await reader.poll(1)).lost == frozenset()
        assert brokers.requests.count("Heartbeat") > 40
        assert brokers.requests.count("JoinGroup") <= 2


async def test_a_slow_application_stops_the_fetches(autojump_clock: Clock) -> None:
    """A001-9: the buffer is bounded in bytes."""
    kafka = FakeKafka(a=1)
    for _ in range(100):
        kafka.produce(A0, 10)
    size = len(kafka.records[A0][0])
    options = {"partitions": [A0], "auto_offset_reset": "earliest", "buffer_bytes_max": 20 * size}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        await reader.poll(1, max_records=1)
        await trio.sleep(60)
        fetches = brokers.requests.count("Fetch")
        assert fetches < 25
        assert reader._core.fetches.buffered_bytes <= 22 * size
        await trio.sleep(600)
        assert brokers.requests.count("Fetch") == fetches
        assert len(await read(reader, 999)) == 999


async def test_a_fast_application_finds_the_next_records_there(autojump_clock: Clock) -> None:
    """While it works on one poll the next fetch is under way, so that it does not wait for it."""
    kafka = FakeKafka(a=1)
    for _ in range(50):
        kafka.produce(A0, 10)
    options = {"partitions": [A0], "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        got = offsets(await reader.poll(5))
        while len(got) < 500:
            await trio.sleep(0.1)
            began = trio.current_time()
            got += offsets(await reader.poll(5))
            assert trio.current_time() == began
        assert got == [(0, n) for n in range(500)]


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


class Reported(RebalanceListener):
    """Notes what it hears."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.received: list[tuple[str, Partitions]] = []
        self.pause_s = pause_s
        self.error: Exception | None = None

    async def _receive(self, event: str, partitions: Partitions) -> None:
        await trio.sleep(self.pause_s)
        self.received.append((event, partitions))
        if self.error is not None:
            raise self.error

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        await self._receive("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        await self._receive("revoked", partitions)

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        await self._receive("lost", partitions)


@pytest.mark.parametrize("same_poll", [False, True])
async def test_a_listener_gets_every_event_and_may_be_slow(same_poll: bool, autojump_clock: Clock) -> None:
    """A000-9 and A001-5: the callback sleeps for three session timeouts, and the member stays."""
    kafka = FakeKafka(a=2)
    listener = Reported(pause_s=30)
    both = {
        "group": "g",
        "topics": ["a"],
        "assignors": ("cooperative-sticky",),
        "session_timeout_s": 10.0,
        "auto_offset_reset": "earliest",
    }
    opened = {**both, "listener": listener, "revoke_in_same_poll": same_poll}
    async with cluster(kafka) as brokers, brokers.consumer(**opened) as first:
        await until(first, lambda: first.assignment == {A0, A1}, 300)
        async with brokers.consumer(client_id="b", **both) as second, trio.open_nursery() as nursery:
            nursery.start_soon(until, second, lambda: len(second.assignment) == 1, 300)
            await until(first, lambda: len(first.assignment) == 1 and len(second.assignment) == 1, 300)
        (retained_partition,) = first.assignment
    lost = frozenset({A0, A1}) - {retained_partition}
    assert listener.received[0] == ("assigned", frozenset({A0, A1}))
    assert ("revoked", lost) in listener.received
    assert all(event != "lost" for event, _ in listener.received)
    assert sum(1 for event, partitions in listener.received if (event, partitions) == ("revoked", lost)) == 1


async def test_a_callback_that_raises_ends_the_poll_and_not_the_rebalance(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = Reported()
    listener.error = RuntimeError("callback")
    options = {"group": "g", "topics": ["a"], "listener": listener, "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        with pytest.raises(RuntimeError, match="callback"):
            await reader.poll(60)
        listener.error = None
        assert await read(reader, 1) == [(0, 0)]


async def test_a_callback_that_is_cancelled_runs_again_in_the_next_poll(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 1)
    listener = Reported(pause_s=10)
    options = {"group": "g", "topics": ["a"], "listener": listener, "auto_offset_reset": "earliest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as reader:
        with trio.move_on_after(8):
            await reader.poll()
        assert listener.received == []
        assert await read(reader, 1) == [(0, 0)]
        assert listener.received == [("assigned", frozenset({A0}))]


async def test_who_does_not_poll_for_too_long_loses_everything_and_joins_again(autojump_clock: Clock) -> None:
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


# The end


async def test_the_group_is_left_at_the_end_also_when_cancelled(autojump_clock: Clock) -> None:
    for cancelled in (False, True):
        kafka = FakeKafka(a=1)
        async with cluster(kafka) as brokers:
            with trio.move_on_after(30):
                async with brokers.consumer(group="g", topics=["a"]) as reader:
                    await until(reader, lambda: reader.assignment == {A0})
                    if cancelled:
                        await reader.poll()
            assert brokers.requests.count("LeaveGroup") == 1
            with pytest.raises(ConsumerClosed):
                await reader.poll(1)


async def test_an_end_without_a_reachable_broker_is_bounded(autojump_clock: Clock) -> None:
    for cancelled, bound in ((True, 2.0), (False, 30.0)):
        kafka = FakeKafka(a=1)
        async with cluster(kafka) as brokers:
            began = 0.0
            with trio.CancelScope() as scope:
                async with brokers.consumer(group="g", topics=["a"]) as reader:
                    await until(reader, lambda: reader.assignment == {A0})
                    for node in brokers.nodes.values():
                        node.stalled = True
                    began = trio.current_time()
                    if cancelled:
                        scope.cancel()
            assert trio.current_time() - began == pytest.approx(bound, abs=0.1)


async def test_an_error_of_the_block_is_raised_unchanged(autojump_clock: Clock) -> None:
    async with cluster(FakeKafka(a=1)) as brokers:

        async def block() -> None:
            async with brokers.consumer(partitions=[A0]) as reader:
                await reader.poll(0)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            await block()


async def test_records_that_cannot_be_read_stop_their_partition_only(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=2)
    for _ in range(3):
        kafka.produce(A0, 2)
    kafka.produce(A1, 2)
    broken = bytearray(kafka.records[A0][1])
    broken[-1] ^= 1
    kafka.records[A0][1] = bytes(broken)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0, A1], auto_offset_reset="earliest") as reader:
        assert sorted(await read(reader, 4)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        for _ in range(2):
            with pytest.raises(ConsumerError, match="a-0 at offset 2: the checksum"):
                await reader.poll(5)
        assert await reader.position(A0) == 2
        reader.seek(A0, 4)
        assert await read(reader, 2) == [(0, 4), (0, 5)]


async def test_polls_that_find_records_do_not_run_the_network_task(autojump_clock: Clock) -> None:
    """Its turn would cost more than the records; but what was said before a poll is done before it."""
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 500)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        assert offsets(await reader.poll(60, max_records=1)) == [(0, 0)]
        await trio.sleep(0.1)
        polls, turned = 0, reader._network._iteration_done
        while reader._network._iteration_done is turned and polls < 10:
            assert len((await reader.poll(1, max_records=10)).records) == 10
            polls += 1
        assert polls == 10
        for offset in (300, 200, 400, 100):
            reader.seek(A0, offset)
            assert offsets(await reader.poll(1, max_records=1)) == [(0, offset)]
        reader.pause([A0])
        assert not (await reader.poll(0)).records


# Without a reset policy


@pytest.mark.parametrize("group", ["g", None])
async def test_position_raises_where_nothing_is_committed_and_nothing_says_where_to_begin(
    group: str | None, autojump_clock: Clock
) -> None:
    """It must not wait for ever: no broker will say."""
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 5)
    async with (
        cluster(kafka) as brokers,
        brokers.consumer(group=group, partitions=[A0], auto_offset_reset="none") as reader,
    ):
        with trio.fail_after(60), pytest.raises(NoOffsetForPartition, match=r"a-0: nothing is committed"):
            await reader.position(A0)
        with trio.fail_after(60), pytest.raises(NoOffsetForPartition):
            await reader.poll()
        reader.seek(A0, 3)
        assert await read(reader, 2) == [(0, 3), (0, 4)]
        assert await reader.position(A0) == 5


async def test_an_offset_out_of_range_is_an_error_without_a_reset_policy(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 5)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="none") as reader:
        reader.seek(A0, 77)
        with trio.fail_after(60), pytest.raises(NoOffsetForPartition, match=r"a-0: offset 77 is out of range"):
            await reader.poll()
        assert await reader.position(A0) == 77


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
