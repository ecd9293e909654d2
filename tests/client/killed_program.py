"""A program that can be killed: polls and commits as the lines on its input say, and writes what it got.

Lines of its input are JSON: {"read": {"main": n, "child": m}} polls until each flow has returned at least this many
records in total; {"commit": [offset, null]} commits an offset, then everything that was polled. Each gets one line in
response: the records received, by flow, the position of the main flow, and the group's committed offset.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import trio
from kafka_share_proxy.client.consumer import Consumer
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.wire.values import TopicPartition

READ_S = 60.0


class Program:
    """One consumer of one partition."""

    def __init__(self, consumer: Consumer, partition: TopicPartition) -> None:
        self._consumer = consumer
        self._partition = partition
        self._got: dict[str, list[int]] = {"main": [], "child": []}

    async def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        if "read" in order:
            await self._read(order["read"])
        for offset in order.get("commit", ()):
            await self._consumer.commit(None if offset is None else {self._partition: offset})
        (committed,) = (await self._consumer.committed([self._partition])).values()
        return {
            **self._got,
            "position": await self._consumer.position(self._partition),
            "committed": committed and committed.offset,
            "text": committed and committed.metadata,
            "alive": self._consumer.child_consumer_is_alive(),
        }

    async def _read(self, expected: dict[str, int]) -> None:
        with trio.fail_after(READ_S):
            while any(len(self._got[flow]) < count for flow, count in expected.items()):
                for record in (await self._consumer.poll(0.2, max_records=5)).records:
                    self._got[record.flow.value].append(record.offset)


async def main(bootstrap: str, topic: str, options: dict[str, Any]) -> None:
    async with open_consumer(bootstrap, topics=[topic], **options) as consumer:
        program = Program(consumer, TopicPartition(topic, 0))
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            response = await program.obey(json.loads(line))
            sys.stdout.write(json.dumps(response) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
