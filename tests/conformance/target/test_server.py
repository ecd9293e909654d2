"""A cluster with its server: many in one process, and what a test does to the nodes."""

from __future__ import annotations

import time

import pytest
import trio

from tests.support.target_client import METADATA, connected, served

CLUSTERS = 100
START_S = 0.3
"""Longest start of one cluster, by processor time."""


async def test_a_hundred_clusters_run_in_one_process() -> None:
    brokers: list[int] = []

    async def run_one(index: int, started: trio.Event, end: trio.Event) -> None:
        async with served(seed=index) as server:
            client = await connected(server)
            brokers.append(len((await client.call(METADATA)).brokers))
            if len(brokers) == CLUSTERS:
                started.set()
            await end.wait()

    started, end = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        for index in range(CLUSTERS):
            nursery.start_soon(run_one, index, started, end)
        with trio.fail_after(60):
            await started.wait()
        assert brokers == [3] * CLUSTERS
        end.set()


async def test_a_cluster_starts_quickly() -> None:
    before = time.process_time()
    async with served():
        assert time.process_time() - before < START_S


async def test_two_clusters_with_the_same_seed_have_the_same_ids() -> None:
    async with served(seed=5) as first, served(seed=5) as second, served(seed=6) as third:
        ids = [server.cluster.create_topic("t").topic_id for server in (first, second, third)]
        assert ids[0] == ids[1] != ids[2]


async def test_a_node_that_does_not_exist_is_an_error() -> None:
    async with served() as server:
        for action in (server.take_node_down, server.bring_node_up, server.refuse_connections):
            with pytest.raises(ValueError, match="there is no node 9"):
                await action(9)


async def test_a_callback_runs_at_a_time_of_the_cluster() -> None:
    async with served() as server:
        server.clock.stop()
        called = trio.Event()

        async def callback() -> None:
            called.set()

        server.run_at(server.clock.now() + 3600, callback)
        await trio.testing.wait_all_tasks_blocked()
        assert not called.is_set()
        server.clock.advance(3600)
        with trio.fail_after(10):
            await called.wait()
