"""Parts of an application: polls that wait for records or a condition, and a listener that records its callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.rebalance_listener import RebalanceListener
from kafka_share_proxy.consumer.partitions import Partitions


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
    """Poll until the condition holds; fails if it does not within the timeout."""
    with trio.move_on_after(timeout_s):
        while not condition():
            await consumer.poll(0.1)
    assert condition()


class RecordingListener(RebalanceListener):
    """Records its callbacks. Each one takes `pause_s` and raises `error` at its end."""

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
