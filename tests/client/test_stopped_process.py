"""A process that is stopped (SIGSTOP) for longer than its lock or its session notices that when it continues."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from kafka_share_proxy.client.opening import open_consumer
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.client.test_real_brokers import EARLIEST, Fresh, create, produce
from tests.client.test_share_real_brokers import EXPLICIT, World, bootstrap, read, short_lock

__all__ = ["bootstrap"]
pytestmark = [pytest.mark.broker, pytest.mark.timeout(240), pytest.mark.xdist_group("quick")]


class Program:
    """tests/client/stopped_program.py in a separate process."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._unread = b""

    async def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        with trio.fail_after(60):
            while b"\n" not in self._unread:
                self._unread += await self.process.stdout.receive_some()
        line, self._unread = self._unread.split(b"\n", 1)
        report: dict[str, Any] = json.loads(line)
        return report

    async def say_go_on(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(b"\n")


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[Program]:
    command = [sys.executable, "-m", "tests.client.stopped_program", *arguments]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Program(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def test_work_is_cancelled_after_a_stop_that_outlasted_the_lock(bootstrap: str, fresh: Fresh) -> None:
    """Brokers confirm a renewal of what another member has accepted: only the clock shows that the lock has ended."""
    world = World(bootstrap, fresh, **short_lock(2.0))
    world.produce(1)
    async with program("share", world.bootstrap, world.topic, world.group) as stopped:
        offset = (await stopped.line())["works_on"]
        stopped.process.send_signal(signal.SIGSTOP)
        async with world.consumer(**EXPLICIT) as other:
            (record,) = await read(other, 1)
            assert (record.offset, record.delivery_count) == (offset, 2)
            assert other.acknowledge(record)
            assert set((await other.commit()).values()) == {None}
        stopped.process.send_signal(signal.SIGCONT)
        assert await stopped.line() == {"ended": "LockLostError"}


async def test_a_member_that_was_stopped_beyond_its_session_returns_no_record_of_what_it_lost(
    kafka_39: Cluster, fresh: Fresh
) -> None:
    (partition,) = create(kafka_39, fresh("topic"))
    produce(kafka_39, partition, range(10))
    group = fresh("group")
    async with program("group", kafka_39.bootstrap, partition.topic, group) as stopped:
        assert await stopped.line() == {"polled": 0}
        stopped.process.send_signal(signal.SIGSTOP)
        async with open_consumer(kafka_39.bootstrap, group=group, topics=[partition.topic], **EARLIEST) as other:
            with trio.fail_after(60):
                while not (await other.poll(1)).records:
                    pass
            await other.commit()
        await stopped.say_go_on()
        stopped.process.send_signal(signal.SIGCONT)
        assert await stopped.line() == {"commit": "PartitionLostError", "records": 0, "lost": 1}
