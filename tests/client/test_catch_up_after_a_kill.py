"""Purpose of KIP-333, on brokers of 3.9.1 and 4.3.0, with the proxy and without: processes are killed (T12)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.notes import CATCH_UP, REBALANCE_STATE, ConsumerNote
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import QUIET, Dialler, Fresh, produce

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

CHECKOUT = Path(__file__).resolve().parents[2]
RESPONSE_S = 90
MODE = {"enable_parallel_rebalance": True}


class Group:
    """One group of one static member, whose processes follow each other: it gets its partition back immediately."""

    def __init__(self, kafka: Cluster, bootstrap: str, fresh: Fresh) -> None:
        self._kafka, self.bootstrap = kafka, bootstrap
        self.name = fresh("group")
        self.partition = TopicPartition(fresh("topic"), 0)
        self.produced = 0
        self._running: list[subprocess.Popen[str]] = []
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
        admin.create_topics([NewTopic(self.partition.topic, 1, 1)])[self.partition.topic].result(30)

    def produce_to(self, end: int) -> None:
        produce(self._kafka, self.partition, range(self.produced, end))
        self.produced = end

    def grow(self, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, **QUIET})
        admin.create_partitions([NewPartitions(self.partition.topic, partitions)])[self.partition.topic].result(30)

    def produce_other(self, partition: TopicPartition, count: int) -> None:
        produce(self._kafka, partition, range(count))

    def start(self, **options: Any) -> subprocess.Popen[str]:
        """Start a process of the member."""
        known = {"group": self.name, "group_instance_id": "i", "auto_offset_reset": "earliest", **options}
        command = [sys.executable, "-m", "tests.client.killed_program", self.bootstrap, self.partition.topic]
        started = subprocess.Popen(
            [*command, json.dumps(known)], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._running.append(started)
        return started

    def crash(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait(RESPONSE_S)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        self._running.remove(process)

    def close(self) -> None:
        for each in list(self._running):
            self.crash(each)

    def crashed_at_100(self) -> None:
        """Kill a process that read to 100 and committed 70. The log ends at 120."""
        self.produce_to(100)
        first = self.start(**MODE)
        assert send_command(first, read={"main": 100}, commit=[70])["committed"] == 70
        self.crash(first)
        self.produce_to(120)


def send_command(process: subprocess.Popen[str], **order: Any) -> dict[str, Any]:
    """Send a command. Return its response."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    response = process.stdout.readline()
    assert response, f"the program ended: {process.wait(RESPONSE_S)}"
    outcome: dict[str, Any] = json.loads(response)
    return outcome


@pytest.fixture(params=["3.9.1", "4.3.0", "3.9.1 through the proxy"])
def group(request: pytest.FixtureRequest, fresh: Fresh) -> Iterator[Group]:
    kafka = request.getfixturevalue("kafka_43" if request.param == "4.3.0" else "kafka_39")
    front = request.getfixturevalue("proxy_39") if "proxy" in request.param else kafka
    new_group = Group(kafka, front.bootstrap, fresh)
    try:
        yield new_group
    finally:
        new_group.close()


def test_a002_1_2_and_5_the_newest_immediately_and_the_rest_in_parallel(group: Group) -> None:
    """No hole, no overlap; committed() is the child's; an offset is of one of the flows (R002-2, 4, 8, 10 and 11)."""
    group.crashed_at_100()
    second = group.start(**MODE)
    assert send_command(second, read={"child": 25})["position"] == 120
    group.produce_to(133)
    response = send_command(second, read={"main": 13}, commit=[95])
    assert response["main"] == list(range(120, 133))
    assert (response["committed"], response["text"]) == (95, "ic/1;;pr=95-120")
    response = send_command(second, commit=[97, 131])
    assert (response["committed"], response["text"]) == (97, "ic/1;120-130;pr=97-120")
    response = send_command(second, read={"child": 50})
    assert sorted(response["main"] + response["child"]) == list(range(70, 133))
    assert response["child"] == list(range(70, 120))
    assert response["alive"] is True
    group.crash(second)
    third = group.start(**MODE)
    response = send_command(third, read={"child": 25})
    assert (response["main"], response["child"]) == ([], [*range(97, 120), 131, 132])
    response = send_command(third, commit=[None])
    assert (response["committed"], response["text"], response["position"]) == (133, "", 133)


def test_a002_3_and_4_what_both_flows_had_committed_when_they_were_killed_does_not_come_again(group: Group) -> None:
    """A002-4: 90 and 128 were committed, and the log ends at 150. A002-3: 160 was, and the log ends at 190.

    R002-6 and 7: a second crash adds a range, and each flow continues at its own last commit.
    """
    group.crashed_at_100()
    second = group.start(**MODE)
    send_command(second, read={"child": 20})
    group.produce_to(130)
    send_command(second, read={"child": 25, "main": 10}, commit=[90, 128])
    group.crash(second)
    group.produce_to(150)
    third = group.start(**MODE)
    response = send_command(third, read={"child": 52})
    assert (response["main"], response["child"]) == ([], [*range(90, 120), *range(128, 150)])
    assert response["position"] == 150
    assert send_command(third, commit=[None])["committed"] == 150
    group.produce_to(170)
    assert send_command(third, read={"main": 20}, commit=[160])["committed"] == 160
    group.crash(third)
    group.produce_to(190)
    fourth = group.start(**MODE)
    response = send_command(fourth, read={"child": 30})
    assert (response["main"], response["child"], response["position"]) == ([], list(range(160, 190)), 190)
    group.produce_to(195)
    response = send_command(fourth, read={"main": 5}, commit=[None])
    assert (response["main"], response["committed"], response["text"]) == (list(range(190, 195)), 195, "")


def test_a002_7_a_stock_consumer_begins_at_the_lower_offset_and_misses_nothing(group: Group) -> None:
    """R002-1: our consumer does the same without the mode."""
    group.crashed_at_100()
    second = group.start(**MODE)
    send_command(second, read={"child": 20})
    group.produce_to(140)
    assert send_command(second, read={"child": 25, "main": 20}, commit=[95, 130])["committed"] == 95
    group.crash(second)
    stock = confluent_kafka.Consumer(
        {
            "bootstrap.servers": group.bootstrap,
            "group.id": group.name,
            "group.instance.id": "i",
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    try:
        stock.subscribe([group.partition.topic])
        got: list[int] = []
        while len(got) < 45:
            message = stock.poll(60)
            assert message is not None, got
            assert message.error() is None
            got.append(message.offset())
        assert got == list(range(95, 140))
        stock.commit(offsets=[confluent_kafka.TopicPartition(*group.partition, 140)], asynchronous=False)
    finally:
        stock.close()
    group.produce_to(145)
    with_the_mode = group.start(**MODE)
    after = send_command(with_the_mode, read={"child": 5})
    assert (after["main"], after["child"], after["position"]) == ([], list(range(140, 145)), 145)
    group.crash(with_the_mode)
    after = send_command(group.start(), read={"main": 5}, commit=[None])
    assert (after["main"], after["child"], after["alive"]) == (list(range(140, 145)), [], False)
    assert (after["committed"], after["text"]) == (145, "")


def committed_behind(group: Group, partition: TopicPartition, offset: int) -> None:
    """Commit as a previous member of the group did before it left."""
    tool = confluent_kafka.Consumer({"bootstrap.servers": group.bootstrap, "group.id": group.name, **QUIET})
    try:
        tool.commit(offsets=[confluent_kafka.TopicPartition(*partition, offset)], asynchronous=False)
    finally:
        tool.close()


async def polled(consumer: Consumer, count: int) -> list[tuple[Flow, int, int]]:
    got: list[tuple[Flow, int, int]] = []
    with trio.move_on_after(RESPONSE_S):
        while len(got) < count:
            got += [(each.flow, each.partition, each.offset) for each in (await consumer.poll(1)).records]
    assert len(got) == count, got
    return got


async def test_a002_6_and_8_pause_stops_both_flows_and_a_partition_without_lag_has_no_second_one(
    group: Group,
) -> None:
    """R002-12: pausing and closing are for both flows, and so is what was processed."""
    group.produce_to(120)
    other = group.partition._replace(partition=1)
    group.grow(2)
    committed_behind(group, group.partition, 70)
    committed_behind(group, other, 0)
    notes: list[ConsumerNote] = []
    options = {
        "group": group.name,
        "auto_offset_reset": "earliest",
        "observe": notes.append,
        "max_poll_records": 1,
        **MODE,
    }
    async with open_consumer(group.bootstrap, topics=[group.partition.topic], **options) as consumer:
        first = await polled(consumer, 1)
        consumer.pause([group.partition])
        group.produce_to(125)
        group.produce_other(other, 3)
        assert sorted(await polled(consumer, 3)) == sorted((Flow.MAIN, 1, offset) for offset in range(3))
        assert not (await consumer.poll(1)).records
        assert set(consumer.catching_up()) == {group.partition}
        consumer.resume([group.partition])
        rest = await polled(consumer, 55 - len(first))
        assert {flow for flow, _, offset in first + rest if offset < 120} == {Flow.CHILD}
        assert sorted(offset for _, _, offset in first + rest) == list(range(70, 125))
        assert await consumer.beginning_offsets([group.partition], processed=True) == {group.partition: 70}
        assert await consumer.end_offsets([group.partition], processed=True) == {group.partition: 125}
        await consumer.commit()
        assert await consumer.committed([group.partition, other]) == {
            group.partition: OffsetAndMetadata(125),
            other: OffsetAndMetadata(3),
        }
    changes = [note.facts["after"] for note in notes if note.event == REBALANCE_STATE]
    assert changes.count("unjoined") == 1, "it left once"
    assert [note.facts["finished"] for note in notes if note.event == CATCH_UP] == [False, True]


async def test_r002_5_and_9_a_poll_returns_of_both_flows_and_polls_commit_both(group: Group) -> None:
    """R002-4 and 7: connections that break meanwhile cost neither flow its place."""
    group.produce_to(120)
    committed_behind(group, group.partition, 70)
    dialler = Dialler()
    options = {"max_poll_records": 5, "auto_commit_interval_s": 0.2, "auto_offset_reset": "earliest", **MODE}
    async with open_consumer(
        group.bootstrap, group=group.name, topics=[group.partition.topic], connect=dialler, **options
    ) as consumer:
        got = {Flow.MAIN: list[int](), Flow.CHILD: list[int]()}

        async def poll(records_max: int | None = None) -> None:
            for record in (await consumer.poll(1, max_records=records_max)).records:
                got[record.flow].append(record.offset)

        with trio.fail_after(RESPONSE_S):
            while not got[Flow.CHILD]:
                await poll(5)
            group.produce_to(140)
            while not consumer._core.fetches.has_records:  # noqa: ASYNC110 - of the network task
                await trio.sleep(0.01)
            before = len(got[Flow.CHILD])
            await poll()
            assert 1 <= len(got[Flow.MAIN]) <= 5
            assert 1 <= len(got[Flow.CHILD]) - before <= 5
            assert consumer.child_consumer_is_alive()
            child, main = got[Flow.CHILD][-1] + 1, got[Flow.MAIN][-1]
            await trio.sleep(0.3)
            await poll(1)  # commits what the polls before it returned
            expected = OffsetAndMetadata(child, f"ic/1;120-{main};pr={child}-120")
            while await consumer.committed([group.partition]) != {group.partition: expected}:  # noqa: ASYNC110 - as above
                await trio.sleep(0.05)
            assert dialler.break_all() >= 1
            while len(got[Flow.MAIN]) + len(got[Flow.CHILD]) < 70:
                await poll()
        assert got == {Flow.MAIN: list(range(120, 140)), Flow.CHILD: list(range(70, 120))}


async def test_r002_3_who_falls_out_of_the_group_leaves_the_next_range_to_the_same_child(
    kafka_43: Cluster, fresh: Fresh
) -> None:
    group = Group(kafka_43, kafka_43.bootstrap, fresh)
    group.produce_to(20)
    committed_behind(group, group.partition, 10)
    options = {"max_poll_interval_s": 1.0, "auto_offset_reset": "earliest", **MODE}
    async with open_consumer(group.bootstrap, group=group.name, topics=[group.partition.topic], **options) as consumer:
        assert await polled(consumer, 10) == [(Flow.CHILD, 0, offset) for offset in range(10, 20)]
        await consumer.commit()
        group.produce_to(30)
        assert await polled(consumer, 10) == [(Flow.MAIN, 0, offset) for offset in range(20, 30)]
        await trio.sleep(2)
        group.produce_to(40)
        assert (await consumer.poll(0.1)).lost == {group.partition}
        assert consumer.child_consumer_is_alive()
        assert await polled(consumer, 20) == [(Flow.CHILD, 0, offset) for offset in range(20, 40)]
        assert await consumer.position(group.partition) == 40
        assert not consumer.catching_up()
