"""The calls of an application, against scripted brokers in memory and a clock that jumps."""

from __future__ import annotations

import pytest
import trio
from kafka_share_proxy.client.network_task import ConsumerClosed, WokenUp
from kafka_share_proxy.consumer.events import CallTimedOut, ConsumerError
from kafka_share_proxy.consumer.fetch.offset_requests import NoOffsetForPartition
from kafka_share_proxy.consumer.groups.states import CoordinatorState
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.wire.values import Address, TopicPartition

from tests.client.application import offsets, read, until
from tests.client.cluster import cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock


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


async def test_records_have_key_value_offset_and_leader_epoch(autojump_clock: Clock) -> None:
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 3)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        records = (await reader.poll(5)).records
        assert [record.value for record in records] == [b"0", b"1", b"2"]
        assert (records[0].topic, records[-1].offset, records[1].key) == ("a", 2, None)
        assert [record.offset for record in records.of(A0)] == [0, 1, 2]
        assert records.next_offsets() == {A0: OffsetAndMetadata(3, leader_epoch=5)}
        assert records.partitions == {A0}


async def test_a_seek_moves_the_position_and_a_paused_partition_returns_nothing(autojump_clock: Clock) -> None:
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
    """A switch to it costs more than the records; calls made before a poll are carried out before it all the same."""
    kafka = FakeKafka(a=1)
    kafka.produce(A0, 500)
    async with cluster(kafka) as brokers, brokers.consumer(partitions=[A0], auto_offset_reset="earliest") as reader:
        assert offsets(await reader.poll(60, max_records=1)) == [(0, 0)]
        await trio.sleep(0.1)
        polls, iteration = 0, reader._network._iteration_done
        while reader._network._iteration_done is iteration and polls < 10:
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
