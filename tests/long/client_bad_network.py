"""Our consumer over a network that stalls, trickles, cuts and loses responses, with brokers of 3.9.1 and 4.3.0.

What tests/client/test_bad_network.py tries in memory. No record is lost, none is delivered twice while we own the
partition, and neither connections nor memory grow without bound. KSP_LONG_SECONDS says how long. Run by tests/long/run,
not by tests/run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from confluent_kafka import Producer
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.consumer.events import ConsumerError
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_real_brokers import QUIET, create
from tests.support.bad_network import BadNetwork

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("KSP_LONG_SECONDS", "60"))
AFTER_S = 60.0
"""For what is left once the network is good again."""
PARTITIONS = 3
DIALS_A_FAULT = 40
"""Three lanes, dialled again after 50 ms to 1 s (reconnect.backoff.ms)."""
VALUE = 1000
PATIENCE: dict[str, Any] = {"request_timeout_s": 3.0, "fetch_max_wait_s": 0.5, "buffer_bytes_max": 1 << 20}
"""Stalls outlast requests, and the buffer is small enough to fill."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"assignors": ("cooperative-sticky",), "session_timeout_s": 30.0},
    "consumer": {"group_protocol": "consumer"},
}
CASES = [("3.9.1", "classic"), ("4.3.0", "classic"), ("4.3.0", "consumer")]
Fresh = Callable[[str], str]


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Cluster:
    cluster: Cluster = request.getfixturevalue({"3.9.1": "kafka_39", "4.3.0": "kafka_43"}[request.param])
    return cluster


class Produces:
    """Producer of numbers as values, over a good network, until stopped."""

    def __init__(self, bootstrap: str, partitions: list[TopicPartition]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET})
        self._partitions = partitions
        self.counts = dict.fromkeys(partitions, 0)

    def some(self, count: int = 200) -> None:
        for _ in range(count):
            for each in self._partitions:
                value = b"%d" % self.counts[each]
                self._producer.produce(each.topic, value.ljust(VALUE, b"."), partition=each.partition)
                self.counts[each] += 1
        assert self._producer.flush(30) == 0

    async def until(self, end: float) -> None:
        while trio.current_time() < end:
            await trio.to_thread.run_sync(self.some)
            await trio.sleep(0.5)


class Application:
    """Polls, checks, and commits."""

    def __init__(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._consumer = consumer
        self.next = dict.fromkeys(partitions, 0)
        """The offset that is to come."""
        self.troubles: list[str] = []
        """Exceptions of poll and commit, which a bad network may cause."""

    async def poll_and_commit(self) -> None:
        try:
            result = await self._consumer.poll(0.5)
            assert not result.lost
            for record in result.records:
                where = TopicPartition(record.topic, record.partition)
                assert record.offset == self.next[where], "neither lost nor twice"
                assert int((record.value or b"").rstrip(b".")) == record.offset
                self.next[where] = record.offset + 1
            if result.records:
                await self._consumer.commit()
        except ConsumerError as error:
            self.troubles.append(str(error))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.poll_and_commit()


@pytest.mark.parametrize(("kafka", "protocol"), CASES, indirect=["kafka"])
async def test_a_bad_network_costs_time_and_no_record(kafka: Cluster, fresh: Fresh, protocol: str) -> None:
    partitions, group = create(kafka, fresh("topic"), PARTITIONS), fresh("group")
    produces = Produces(kafka.bootstrap, partitions)
    options: dict[str, Any] = {"group": group, "topics": [partitions[0].topic], "auto_offset_reset": "earliest"}
    with BadNetwork(random.Random(f"{kafka.release} {protocol}")) as network:
        async with open_consumer(
            kafka.bootstrap, connect=network.connect, **options, **PROTOCOLS[protocol], **PATIENCE
        ) as consumer:
            application = Application(consumer, partitions)
            await application.until(lambda: len(consumer.assignment) == PARTITIONS)
            end = trio.current_time() + SECONDS
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produces.until, end)
                nursery.start_soon(network.misbehave, SECONDS)
                await application.until(lambda: trio.current_time() > end)
            with trio.fail_after(AFTER_S):
                await application.until(lambda: application.next == produces.counts)
                await consumer.commit()
            assert await consumer.committed(partitions) == {
                each: OffsetAndMetadata(count) for each, count in produces.counts.items()
            }
            assert sum(each.buffered_bytes for each in consumer._core.flows) <= PATIENCE["buffer_bytes_max"]
            assert network.dialled < DIALS_A_FAULT * (len(network.faults) + 1)
            read = sum(application.next.values())
            print(f"\n{read} records, {network.dialled} connections, faults {network.faults}: {application.troubles}")
