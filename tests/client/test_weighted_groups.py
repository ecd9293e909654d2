"""Groups on a plan of uneven weights, on a real broker: how many records each member gets."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
from kafka_share_proxy.app import cli
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.option_types import AssignorName
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.wire.records.key_hash import murmur2
from typer.testing import CliRunner

from tests.client.test_real_brokers import EARLIEST, QUIET, Fresh, create
from tests.support.brokers import VIEWS, Running

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

WEIGHTS = (0.2, 0.05) * 4
"""Every second slot is heavy, so that who counts gives all heavy ones to one member."""
SLOTS = len(WEIGHTS)
RECORDS = 2000
SETTLED_S = 60


@pytest.fixture(scope="module")
def viewed(running: Running, kafka_39: Cluster) -> Front:
    return running.front(kafka_39.bootstrap, VIEWS)


def store_plan(kafka: Cluster, file: Path, name: str) -> None:
    width = (1 << 32) // SLOTS
    ranges = [[n * width, (n + 1) * width, weight] for n, weight in enumerate(WEIGHTS)]
    file.write_text(json.dumps({"version": 1, "ranges": ranges}))
    command = ["views", "plan", str(file), "--name", name, "--upstream", kafka.bootstrap]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 0, result.output


def produce_as_planned(kafka: Cluster, topic: str) -> None:
    """Produce to each slot its share of the records, each with a different key."""
    left = [round(weight * RECORDS) for weight in WEIGHTS]
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    number = 0
    while any(left):
        key = b"k%d" % number
        number += 1
        slot = murmur2(key) * SLOTS >> 32
        if left[slot]:
            left[slot] -= 1
            producer.produce(topic, b"v", key=key, partition=0)
    assert producer.flush(30) == 0


class Group:
    """Members that poll, and what each of them got."""

    def __init__(self, front: str, name: str, topic: str, assignor: AssignorName, nursery: trio.Nursery) -> None:
        self._opened = {"bootstrap": front, "group": name, "topics": [topic], "assignors": (assignor,)}
        self._nursery = nursery
        self._stops: list[trio.CancelScope] = []
        self.members: list[Consumer] = []
        self.got: list[int] = []

    async def join(self) -> None:
        await self._nursery.start(self._run)

    def leave(self) -> None:
        """Let the last member leave."""
        self.members.pop()
        self._stops.pop().cancel()

    async def settle(self, partitions: int) -> list[list[int]]:
        """Wait until all partitions are assigned for two seconds without a change. Return those of each member."""
        with trio.fail_after(SETTLED_S):
            before, now = None, list[list[int]]()
            while now != before or sorted(n for mine in now for n in mine) != list(range(partitions)):
                before = now
                await trio.sleep(2)
                now = [sorted(each.partition for each in member.assignment) for member in self.members]
        return now

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        options: dict[str, Any] = {"heartbeat_interval_s": 0.2, "session_timeout_s": 10.0, **EARLIEST}
        async with AsyncExitStack() as stack:
            consumer = await stack.enter_async_context(open_consumer(**self._opened, **options))
            place = len(self.got)
            self.members.append(consumer)
            self.got.append(0)
            with trio.CancelScope() as scope:
                self._stops.append(scope)
                task_status.started()
                while not scope.cancel_called:
                    self.got[place] += len((await consumer.poll(0.2)).records)


def loads(assigned: list[list[int]]) -> list[float]:
    return [round(sum(WEIGHTS[n % SLOTS] for n in mine), 6) for mine in assigned]


def retained_count(before: list[list[int]], after: list[list[int]]) -> int:
    return sum(len(set(one) & set(other)) for one, other in zip(before, after, strict=False))


@pytest.mark.parametrize(
    ("assignor", "shares"), [("weighted-sticky", [0.5, 0.5]), ("roundrobin", [0.2, 0.8])], ids=["weights", "counts"]
)
async def test_members_get_the_records_of_their_weights(
    viewed: Front, kafka_39: Cluster, tmp_path: Path, fresh: Fresh, assignor: AssignorName, shares: list[float]
) -> None:
    """A plan with four heavy slots and four light ones."""
    (base,), plan = create(kafka_39, fresh("base")), fresh("plan")
    await trio.to_thread.run_sync(store_plan, kafka_39, tmp_path / "plan.json", plan)
    async with trio.open_nursery() as nursery:
        group = Group(viewed.bootstrap, fresh("group"), f"__view.p{plan}.{base.topic}", assignor, nursery)
        await group.join()
        await group.join()
        assert sorted(loads(await group.settle(SLOTS))) == shares
        produce_as_planned(kafka_39, base.topic)
        with trio.fail_after(60):
            while sum(group.got) < RECORDS:  # noqa: ASYNC110 - of several members
                await trio.sleep(0.1)
        assert sorted(group.got) == [share * RECORDS for share in shares]
        nursery.cancel_scope.cancel()


async def test_a_member_that_joins_or_leaves_moves_few_partitions(
    viewed: Front, kafka_39: Cluster, tmp_path: Path, fresh: Fresh
) -> None:
    """Two base partitions: 16 partitions of the view, which 4 members can share evenly."""
    base, plan = create(kafka_39, fresh("base"), 2)[0], fresh("plan")
    await trio.to_thread.run_sync(store_plan, kafka_39, tmp_path / "plan.json", plan)
    async with trio.open_nursery() as nursery:
        group = Group(viewed.bootstrap, fresh("group"), f"__view.p{plan}.{base.topic}", "weighted-sticky", nursery)
        for _ in range(3):
            await group.join()
        three = await group.settle(2 * SLOTS)
        await group.join()
        four = await group.settle(2 * SLOTS)
        assert loads(four) == [0.5] * 4
        assert retained_count(three, four) >= SLOTS
        group.leave()
        left = await group.settle(2 * SLOTS)
        assert retained_count(four, left) >= SLOTS
        assert max(loads(left)) <= 0.8
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("where", ["kafka_39", "kafka_43", "viewed"])
async def test_partitions_of_a_base_topic_are_counted(request: pytest.FixtureRequest, where: str, fresh: Fresh) -> None:
    """Brokers ignore the tagged field that requests weights, also where the proxy forwards it."""
    bootstrap: str = request.getfixturevalue(where).bootstrap
    kafka: Cluster = request.getfixturevalue("kafka_39" if where == "viewed" else where)
    topic = create(kafka, fresh("topic"), 4)[0].topic
    async with trio.open_nursery() as nursery:
        group = Group(bootstrap, fresh("group"), topic, "weighted-sticky", nursery)
        await group.join()
        await group.join()
        assert [len(mine) for mine in await group.settle(4)] == [2, 2]
        nursery.cancel_scope.cancel()
