"""Metrics by name."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from kafka_share_proxy.client.client_metrics import PREFIX, ClientMetrics
from kafka_share_proxy.client.notes import COMMITTED, POLLED, REBALANCE_STATE, ConsumerNote
from kafka_share_proxy.client.share_notes import RECORDS_ACKNOWLEDGED
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.cluster import cluster
from tests.consumer.managers import LOST
from tests.consumer.test_troubles import request
from tests.consumer.world import FakeKafka

Clock = trio.testing.MockClock


async def test_counts_and_latencies_have_the_names_of_kip_714(autojump_clock: Clock) -> None:
    metrics, passed_on = ClientMetrics(), list[ConsumerNote]()
    observe = metrics.observed_by(passed_on.append)
    fetch, failed = request("Fetch"), request("Heartbeat")
    metrics.on_sent(fetch)
    metrics.on_sent(failed)
    await trio.sleep(0.2)
    metrics.on_outcome(fetch, messages.FetchResponse())
    metrics.on_outcome(failed, LOST)
    observe(ConsumerNote(REBALANCE_STATE, {"after": "preparing_rebalance"}))
    await trio.sleep(1)
    observe(ConsumerNote(REBALANCE_STATE, {"after": "stable"}))
    observe(ConsumerNote(COMMITTED, {"took_s": 0.5}))
    observe(ConsumerNote(COMMITTED, {"took_s": 1.5}))
    observe(ConsumerNote(POLLED, {"main": 3, "child": 1, "took_s": 1.0}))
    await trio.sleep(1)
    observe(ConsumerNote(RECORDS_ACKNOWLEDGED, {"records": 2, "error": "INVALID_RECORD_STATE"}))
    values = {name.removeprefix(PREFIX): value for name, value in metrics.values({"gauge": 7}).items()}
    assert values == {
        "connection.creation.total": 0,
        "coordinator.commit.latency.avg": 1000,
        "coordinator.commit.latency.max": 1500,
        "coordinator.commit.total": 2,
        "coordinator.rebalance.latency.avg": pytest.approx(1000),
        "coordinator.rebalance.latency.max": pytest.approx(1000),
        "coordinator.rebalance.latency.total": pytest.approx(1000),
        "coordinator.rebalance.total": 1,
        "fetch.manager.fetch.latency.avg": pytest.approx(200),
        "fetch.manager.fetch.latency.max": pytest.approx(200),
        "fetch.manager.fetch.total": 1,
        "fetch.manager.records.consumed.total": 4,
        "gauge": 7,
        "node.request.latency.avg": pytest.approx(200),
        "node.request.latency.max": pytest.approx(200),
        "poll.idle.ratio.avg": pytest.approx(0.5),
        "share.fetch.manager.acknowledgements.error.total": 2,
        "share.fetch.manager.acknowledgements.send.total": 2,
    }
    assert len(passed_on) == 6


async def test_a_consumer_counts_what_it_does(autojump_clock: Clock) -> None:
    kafka, partition = FakeKafka(a=1), TopicPartition("a", 0)
    kafka.produce(partition, 5)
    async with (
        cluster(kafka) as brokers,
        brokers.consumer(group="g", topics=["a"], auto_offset_reset="earliest") as consumer,
    ):
        assert consumer.metrics()[f"{PREFIX}connection.creation.total"] == 0
        got = 0
        while got < 5:
            got += len((await consumer.poll(1, max_records=3)).records)
            if got == 3:
                assert consumer.metrics()[f"{PREFIX}fetch.manager.records.lag.max"] == 2
        await consumer.commit()
        values = consumer.metrics()
    assert values[f"{PREFIX}fetch.manager.records.consumed.total"] == 5
    assert values[f"{PREFIX}coordinator.assigned.partitions"] == 1
    assert values[f"{PREFIX}coordinator.commit.total"] == 1
    assert values[f"{PREFIX}coordinator.rebalance.total"] == 1
    assert values[f"{PREFIX}connection.creation.total"] >= 2
    assert 0 < values[f"{PREFIX}poll.idle.ratio.avg"] <= 1
    assert values[f"{PREFIX}fetch.manager.fetch.latency.max"] >= 0
