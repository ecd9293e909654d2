"""Redelivery delays on real brokers (sharegroups/README.md rules 80-84; consumer/share_consumers.md rule 17)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
from confluent_kafka import AcknowledgeType as StockType
from kafka_share_proxy.client.share_consumer import ShareConsumer
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.client.test_share_real_brokers import EXPLICIT, LIMIT_S, Stock, World, read

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240), pytest.mark.xdist_group("quick")]

Fresh = Callable[[str], str]


async def attempts(consumer: ShareConsumer, count: int, **release: Any) -> list[tuple[int, float]]:
    """Release the record of each delivery. Return its delivery count and the time of its arrival."""
    arrived: list[tuple[int, float]] = []
    for _ in range(count):
        (record,) = await read(consumer, 1)
        arrived.append((record.delivery_count, time.monotonic()))
        consumer.release(record, **release)
        await consumer.commit()
    return arrived


def gaps(arrived: list[tuple[int, float]]) -> list[float]:
    assert [count for count, _ in arrived] == list(range(1, len(arrived) + 1))
    return [after[1] - before[1] for before, after in pairwise(arrived)]


async def test_each_attempt_is_delivered_when_it_is_due(proxy_39_quick: Front, fresh: Fresh) -> None:
    delay = {"share.redelivery.delay.ms": "500", "share.redelivery.delay.max.ms": "1500"}
    world = World(proxy_39_quick.bootstrap, fresh, **delay)
    world.produce(1)
    async with world.consumer(**EXPLICIT) as consumer:
        waited = gaps(await attempts(consumer, 4))
    for seconds, least in zip(waited, (0.45, 0.9, 1.35), strict=True):
        assert least <= seconds < least + LIMIT_S / 4


async def test_a_named_delay_holds_in_a_group_without_delay(proxy_39_quick: Front, fresh: Fresh) -> None:
    world = World(proxy_39_quick.bootstrap, fresh)
    world.produce(1)
    async with world.consumer(**EXPLICIT) as consumer:
        waited = gaps(await attempts(consumer, 3, delay_s=1.5))
    assert all(1.5 <= seconds < 1.5 + LIMIT_S / 4 for seconds in waited)


async def test_brokers_ignore_a_named_delay_which_is_logged_once(
    kafka_43_quick: Cluster, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(kafka_43_quick.bootstrap, fresh)
    world.produce(1)
    with caplog.at_level(logging.WARNING, "kafka_share_proxy.requests"):
        async with world.consumer(**EXPLICIT) as consumer:
            waited = gaps(await attempts(consumer, 3, delay_s=600))
    assert len(waited) == 2
    assert sum("no effect" in each.message for each in caplog.records) == 1


async def test_a_stock_member_releases_and_the_delay_holds_also_once_it_is_changed(
    proxy_39_quick: Front, fresh: Fresh
) -> None:
    world = World(proxy_39_quick.bootstrap, fresh, **{"share.redelivery.delay.ms": "1500"})
    world.produce(1)

    def released(stock: Stock) -> float:
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            for message in stock.consumer.poll(0.2):
                arrived = time.monotonic()
                stock.consumer.acknowledge(message, StockType.RELEASE)
                stock.consumer.commit_sync(10)
                return arrived
        raise AssertionError("nothing was delivered")

    def play() -> list[float]:
        stock = Stock(world)
        try:
            arrived = [released(stock), released(stock)]
            world.configure(**{"share.redelivery.delay.ms": "0"})
            return [*arrived, released(stock)]
        finally:
            stock.consumer.close()

    first, second, third = await trio.to_thread.run_sync(play)
    assert second - first >= 1.35
    assert third - second < 2.7, "the removal of the delay makes waiting records available"
