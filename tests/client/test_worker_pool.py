"""The typical program for delayed revokes: workers in parallel with the loop, members that join and leave, every record
once.

Work takes time and ends in any order; a member keeps partitions to be revoked until their work is done and committed.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.polled_records import ConsumerRecord
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import ScriptedCluster, cluster
from tests.consumer.world import FakeKafka

PARTITIONS = [TopicPartition("a", number) for number in range(6)]
RECORDS = 100
"""Number of records of each partition."""


class Program:
    """One process of the application."""

    def __init__(self, brokers: ScriptedCluster, name: str, seed: int, **options: Any) -> None:
        self.worked_on: Counter[tuple[int, int]] = Counter()
        self.delays = 0
        self.lost: set[TopicPartition] = set()
        self.leaves = trio.Event()
        self._brokers = brokers
        self._random = random.Random(seed)
        self._busy: Counter[TopicPartition] = Counter()
        self._options = {
            "group": "g",
            "topics": ["a"],
            "client_id": name,
            "auto_offset_reset": "earliest",
            "individual_commits": True,
            "max_poll_records": 7,
            **options,
        }

    async def run(self) -> None:
        async with self._brokers.consumer(**self._options) as consumer, trio.open_nursery() as workers:
            while not self.leaves.is_set():
                await self._poll_once(consumer, workers)
            consumer.pause(consumer.assignment)
            while self._busy.total():
                await self._poll_once(consumer, workers)
            await consumer.commit()

    async def _poll_once(self, consumer: Consumer, workers: trio.Nursery) -> None:
        result = await consumer.poll(0.2)
        for record in result.records:
            self._busy[TopicPartition(record.topic, record.partition)] += 1
            workers.start_soon(self._work, consumer, record)
        self.lost |= result.lost
        still = {each for each in result.to_be_revoked if self._busy[each]}
        await consumer.commit()
        if still:
            self.delays += 1
            consumer.delay_revoke(still)

    async def _work(self, consumer: Consumer, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        async with consumer.work(record):
            await trio.sleep(self._random.uniform(0.05, 3))
        self._busy[partition] -= 1
        self.worked_on[record.partition, record.offset] += 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [{"assignors": ("cooperative-sticky",)}, {"group_protocol": "consumer"}, {"assignors": ("range",)}],
    ids=["cooperative", "consumer", "eager"],
)
async def test_every_record_is_processed_once_while_members_join_and_leave(
    options: dict[str, Any], seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    kafka = FakeKafka(group=options.get("group_protocol", "classic"), a=len(PARTITIONS))
    drawn = random.Random(seed)
    async with cluster(kafka) as brokers, trio.open_nursery() as nursery:
        programs = [Program(brokers, f"p{number}", seed * 10 + number, **options) for number in range(4)]
        for program in programs:
            nursery.start_soon(program.run)
            await trio.sleep(drawn.uniform(0, 8))
            for partition in PARTITIONS:
                kafka.produce(partition, RECORDS // 4)
        await trio.sleep(drawn.uniform(0, 20))
        for program in programs[:2]:
            program.leaves.set()
            await trio.sleep(drawn.uniform(0, 8))
        for _ in range(300):
            if all(kafka.committed.get(each) == RECORDS for each in PARTITIONS):
                break
            await trio.sleep(1)
        for program in programs:
            program.leaves.set()
    worked_on = sum((program.worked_on for program in programs), Counter())
    assert worked_on == Counter({(each.partition, n): 1 for each in PARTITIONS for n in range(RECORDS)})
    assert kafka.committed == dict.fromkeys(PARTITIONS, RECORDS)
    assert sum(program.delays for program in programs) > 0
    assert [program.lost for program in programs] == [set()] * 4
