"""Two flows of one consumer after a crash, against scripted brokers in memory and a clock that jumps (KIP-333)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.notes import CATCH_UP, ConsumerNote
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import ScriptedCluster, cluster
from tests.consumer.world import FakeKafka

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
Clock = trio.testing.MockClock
MODE: dict[str, Any] = {
    "group": "g",
    "topics": ["a"],
    "auto_offset_reset": "earliest",
    "enable_parallel_rebalance": True,
}


def behind(committed: int = 70, end: int = 120, text: str = "", partitions: int = 1) -> FakeKafka:
    """Create a log with this committed offset."""
    kafka = FakeKafka(a=partitions)
    for first in range(0, end, 10):
        kafka.produce(A0, min(10, end - first))
    kafka.committed[A0], kafka.texts[A0] = committed, text
    return kafka


async def read(consumer: Consumer, count: int, partition: TopicPartition = A0) -> dict[Flow, list[int]]:
    """Poll until this many records of a partition are returned, by flow; fails if they do not arrive."""
    got: dict[Flow, list[int]] = {Flow.MAIN: [], Flow.CHILD: []}
    with trio.move_on_after(60):
        while sum(map(len, got.values())) < count:
            for record in (await consumer.poll(1)).records:
                if record.partition == partition.partition:
                    got[record.flow].append(record.offset)
    assert sum(map(len, got.values())) == count, got
    return got


async def read_child_to(consumer: Consumer, offset: int) -> None:
    """Poll until the child has read all offsets below this one. The main flow waits for records."""
    with trio.fail_after(60):
        while not (left := consumer.catching_up().get(A0)) or left[0].start < offset:
            await consumer.poll(1, max_records=5)


async def test_the_main_flow_continues_at_the_end_and_the_child_reads_the_skipped_records(
    autojump_clock: Clock,
) -> None:
    """A002-1: no hole, no overlap; each flow ascends."""
    kafka = behind()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        assert not consumer.child_consumer_is_alive()
        got = await read(consumer, 50)
        assert got == {Flow.MAIN: [], Flow.CHILD: list(range(70, 120))}
        assert await consumer.position(A0) == 120
        assert consumer.child_consumer_is_alive()
        kafka.produce(A0, 3)
        assert await read(consumer, 3) == {Flow.MAIN: [120, 121, 122], Flow.CHILD: []}
        assert await consumer.position(A0) == 123
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (123, "")
        kafka.produce(A0, 1)
        assert await read(consumer, 1) == {Flow.MAIN: [123], Flow.CHILD: []}


async def test_committed_is_what_the_child_has_done_until_it_has_done_all(autojump_clock: Clock) -> None:
    """A002-2."""
    kafka = behind()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 95)
        await consumer.commit()
        assert await consumer.committed([A0]) == {A0: OffsetAndMetadata(95, "ic/1;;pr=95-120")}
        kafka.produce(A0, 13)
        await read(consumer, 38)
        await consumer.commit()
        assert await consumer.committed([A0]) == {A0: OffsetAndMetadata(133)}


async def test_begin_and_end_of_what_both_flows_have_processed(autojump_clock: Clock) -> None:
    """R002-12: the lowest and the highest of both flows, on request; The call with Kafka's own meaning still exists."""
    kafka = behind(partitions=2)
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        assert await consumer.beginning_offsets([A0, A1], processed=True) == {}
        await read_child_to(consumer, 95)
        assert await consumer.beginning_offsets([A0, A1], processed=True) == {A0: 70}
        assert await consumer.end_offsets([A0, A1], processed=True) == {A0: 95}
        kafka.produce(A0, 13)
        await read(consumer, 38)
        await consumer.commit()  # the child has come to its end
        assert await consumer.beginning_offsets([A0], processed=True) == {A0: 70}
        assert await consumer.end_offsets([A0], processed=True) == {A0: 133}
        assert await consumer.beginning_offsets([A0]) == {A0: 0}
        consumer.seek(A0, 60)
        await read(consumer, 73)
        assert await consumer.beginning_offsets([A0], processed=True) == {A0: 60}
        assert await consumer.end_offsets([A0]) == {A0: 133}
        assert len(await consumer.offsets_for_times({A0: 0})) == 1


async def test_a_second_crash_leaves_a_second_range_to_the_child(autojump_clock: Clock) -> None:
    """A002-3: crashed at 170 with 140 committed, the log ends at 190; the child's unfinished offsets are read first."""
    kafka = behind(95, 190, "ic/1;120-139;pr=95-120")
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 100)
        assert consumer.catching_up() == {A0: (OffsetSpan(100, 120), OffsetSpan(140, 190))}
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (100, "ic/1;120-139;pr=100-120,140-190")
        kafka.produce(A0, 2)
        got = await read(consumer, 72)
        assert got == {Flow.MAIN: [190, 191], Flow.CHILD: [*range(100, 120), *range(140, 190)]}
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (192, "")


async def test_both_flows_go_on_where_their_commits_were_after_both_were_killed(autojump_clock: Clock) -> None:
    """A002-4: the child had committed 90, the main flow 128; the log ends at 150."""
    kafka = behind(90, 150, "ic/1;120-127;pr=90-120")
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        assert await read(consumer, 52) == {Flow.MAIN: [], Flow.CHILD: [*range(90, 120), *range(128, 150)]}
        assert await consumer.position(A0) == 150


async def test_an_offset_is_committed_for_the_flow_that_it_is_of(autojump_clock: Clock) -> None:
    """A002-5: 97 is the child's, 131 the main flow's; after a crash only 97..119 and 131+ come again."""
    kafka = behind()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 100)
        kafka.produce(A0, 15)
        await read(consumer, 35)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.commit, {A0: 97})
            nursery.start_soon(consumer.commit, {A0: 131})
        assert (kafka.committed[A0], kafka.texts[A0]) == (97, "ic/1;120-130;pr=97-120")
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        assert await read(consumer, 27) == {Flow.MAIN: [], Flow.CHILD: [*range(97, 120), *range(131, 135)]}


async def test_where_the_main_flow_began_is_no_commit_of_the_child(autojump_clock: Clock) -> None:
    """120 is its position before it has read anything, and the end of the child's range: nothing may be skipped."""
    kafka = behind()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 80)
        await consumer.commit({A0: await consumer.position(A0)})
        assert (kafka.committed[A0], kafka.texts[A0]) == (70, "ic/1;;pr=70-120")
        await read(consumer, 40)
        await consumer.commit({A0: 120})
        assert (kafka.committed[A0], kafka.texts[A0]) == (120, "")


async def test_pause_stops_both_flows_and_resume_starts_both(autojump_clock: Clock) -> None:
    """A002-6."""
    kafka = behind()
    async with cluster(kafka) as brokers:
        async with brokers.consumer(**MODE) as consumer:
            await read_child_to(consumer, 75)
            consumer.pause([A0])
            kafka.produce(A0, 5)
            for _ in range(5):
                assert not (await consumer.poll(1)).records
            consumer.resume([A0])
            got = await read(consumer, 50)
            assert got == {Flow.MAIN: list(range(120, 125)), Flow.CHILD: list(range(75, 120))}
        assert brokers.requests.count("LeaveGroup") == 1


async def test_a_member_without_the_mode_begins_at_the_lower_offset(autojump_clock: Clock) -> None:
    """A002-7, with our own consumer: done records above the committed offset are skipped once, and all others are
    delivered.
    """
    kafka = behind(90, 150, "ic/1;120-127;pr=90-120")
    plain = {**MODE, "enable_parallel_rebalance": False}
    async with cluster(kafka) as brokers, brokers.consumer(**plain) as consumer:
        got = await read(consumer, 52)
        assert got == {Flow.MAIN: [*range(90, 120), *range(128, 150)], Flow.CHILD: []}
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (150, "")
        assert not consumer.child_consumer_is_alive()


async def test_a_partition_without_lag_is_read_as_usual(autojump_clock: Clock) -> None:
    """A002-8: it has no token, and its commits are plain."""
    kafka = behind(partitions=2)
    kafka.produce(A1, 30)
    kafka.committed[A1] = 30
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 80)
        assert set(consumer.catching_up()) == {A0}
        kafka.produce(A1, 4)
        assert await read(consumer, 4, A1) == {Flow.MAIN: [30, 31, 32, 33], Flow.CHILD: []}
        await consumer.commit({A1: 34})
        assert (kafka.committed[A1], kafka.texts[A1]) == (34, "")


async def test_without_a_committed_offset_the_reset_policy_says(autojump_clock: Clock) -> None:
    kafka = behind()
    del kafka.committed[A0]
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        assert await read(consumer, 120) == {Flow.MAIN: list(range(120)), Flow.CHILD: []}
        assert not consumer.child_consumer_is_alive()


@pytest.mark.parametrize("auto", [None, 1.0])
async def test_the_next_owner_continues_with_both_flows(auto: float | None, autojump_clock: Clock) -> None:
    """A rebalance in the midst: both flows are committed with what goes, and the other member continues with both."""
    kafka = behind(partitions=2)
    options = {**MODE, "assignors": ("cooperative-sticky",), "auto_commit_interval_s": auto}
    got: list[int] = []
    async with cluster(kafka) as brokers, brokers.consumer(client_id="z", **options) as first:
        await read_child_to(first, 85)
        kafka.produce(A0, 6)
        with trio.fail_after(60):
            while await first.position(A0) < 126:
                await first.poll(1, max_records=1)
                await trio.sleep(0.2)
        at = first.catching_up()[A0][0].start
        assert at < 120
        if auto is None:
            await first.commit()
        await first.unsubscribe()
        assert (kafka.committed[A0], kafka.texts[A0]) == (at, f"ic/1;120-125;pr={at}-120")
        kafka.produce(A0, 4)
        async with brokers.consumer(client_id="a", **options) as second:
            records_by_flow = await read(second, 120 - at + 4)
            got = records_by_flow[Flow.CHILD]
    assert got == [*range(at, 120), *range(126, 130)]


class Notes:
    def __init__(self) -> None:
        self.of: list[Mapping[str, Any]] = []

    def __call__(self, note: ConsumerNote) -> None:
        if note.event == CATCH_UP:
            self.of.append(note.facts)


async def test_each_catch_up_range_is_reported_when_it_begins_and_when_it_ends(autojump_clock: Clock) -> None:
    kafka, notes = behind(95, 190, "ic/1;120-139;pr=95-120"), Notes()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE, observe=notes) as consumer:
        await read(consumer, 75)
        await consumer.poll(1)
    assert [(note["token"], note["remaining"], note["finished"]) for note in notes.of] == [
        ("95-119", 25, False),
        ("140-189", 50, False),
        ("95-119", 0, True),
        ("140-189", 0, True),
    ]
    assert notes.of[0]["partition"] == "a-0"


async def test_records_lost_to_retention_shrink_a_range_and_are_reported(autojump_clock: Clock) -> None:
    """The child never goes where the reset policy says, and the committed offset passes what is gone."""
    kafka, notes = behind(), Notes()
    kafka.starts[A0] = 90
    async with cluster(kafka) as brokers, brokers.consumer(**MODE, observe=notes) as consumer:
        assert await read(consumer, 30) == {Flow.MAIN: [], Flow.CHILD: list(range(90, 120))}
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (120, "")
    assert ("70-89", "deleted before it was read: the log begins at 90") in [
        (note["token"], note["reason"]) for note in notes.of
    ]


async def test_a_log_that_is_cut_below_the_end_of_a_range_ends_it_there(autojump_clock: Clock) -> None:
    kafka = behind()
    options = {**MODE, "auto_offset_reset": "latest"}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as consumer:
        await read_child_to(consumer, 80)
        consumer.pause([A0])
        await consumer.poll(1)
        kafka.records[A0], kafka.ends[A0] = kafka.records[A0][:9], 90
        kafka.produce(A0, 5)
        consumer.resume([A0])
        got: list[int] = []
        with trio.fail_after(60):
            while consumer.catching_up():
                got += [record.offset for record in (await consumer.poll(1)).records]
        assert set(got) >= set(range(80, 95))
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (95, "")


async def test_a_seek_back_takes_the_range_from_the_child(autojump_clock: Clock) -> None:
    kafka = behind()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 80)
        consumer.seek(A0, 100)
        got = await read(consumer, 40)
        assert got == {Flow.MAIN: list(range(100, 120)), Flow.CHILD: list(range(80, 100))}
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (120, "")


async def test_a_commit_ahead_of_the_child_takes_it_there(autojump_clock: Clock) -> None:
    """So a batch that cannot be read can be passed over."""
    kafka = behind()
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        await read_child_to(consumer, 80)
        await consumer.commit({A0: 110})
        got = await read(consumer, 10)
        assert got[Flow.CHILD] == list(range(110, 120))


async def test_records_of_both_flows_are_done_in_any_order(autojump_clock: Clock) -> None:
    """Individual commits: the same text, finer."""
    kafka = behind()
    options = {**MODE, "individual_commits": True}
    async with cluster(kafka) as brokers, brokers.consumer(**options) as consumer:
        kafka_before = await records(brokers, consumer, 50)
        kafka.produce(A0, 5)
        newest = await records(brokers, consumer, 5)
        for record in [*newest[1:], *kafka_before[10:20]]:
            consumer.done(record)
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (70, "ic/1;80-89,121-124")
    async with cluster(kafka) as brokers, brokers.consumer(**options) as consumer:
        again = await records(brokers, consumer, 41)
        assert [record.offset for record in again] == [*range(70, 80), *range(90, 121)]
        for record in again:
            consumer.done(record)
        await consumer.commit()
        assert (kafka.committed[A0], kafka.texts[A0]) == (125, "ic/1;")


async def records(_: ScriptedCluster, consumer: Consumer, count: int) -> list[Any]:
    got: list[Any] = []
    with trio.move_on_after(60):
        while len(got) < count:
            got += (await consumer.poll(1)).records
    assert len(got) == count
    return got


async def test_text_of_a_newer_version_is_an_error_and_no_task_remains(autojump_clock: Clock) -> None:
    kafka = behind(text="ic/2;80-90")
    async with cluster(kafka) as brokers, brokers.consumer(**MODE) as consumer:
        with pytest.raises(Exception, match="version 2"):
            await read(consumer, 50)
        assert await read(consumer, 50) == {Flow.MAIN: list(range(70, 120)), Flow.CHILD: []}


async def test_the_mode_needs_a_group() -> None:
    cluster_of_nobody = FakeKafka(a=1)
    async with cluster(cluster_of_nobody) as brokers:
        with pytest.raises(ConfigurationError, match=r"enable_parallel_rebalance needs a group"):
            brokers.consumer(partitions=[A0], enable_parallel_rebalance=True)
