"""Offsets by position and timestamp."""

from __future__ import annotations

from tests.support.target_caller import START_MS, Caller, batch, running_cluster


async def offset_of(caller: Caller, timestamp: int, *, isolation: int = 0, version: int = 10) -> tuple[int, int]:
    partition = {"partition_index": 0, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [partition]}]
    response = await caller.query("ListOffsets", version, topics=topics, isolation_level=isolation)
    return response.topics[0].partitions[0].error_code, response.topics[0].partitions[0].offset


async def test_positions_and_timestamps_are_found() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        for _ in range(3):
            await caller.produce("t", batch("a"))
        cluster.delete_records("t", 0, 1)
        offsets = [(await offset_of(caller, each))[1] for each in (-1, -2, -3, -4, -5, START_MS, START_MS + 1)]
        assert offsets == [3, 1, 1, 1, -1, 1, -1]


async def test_a_partition_that_is_named_twice_is_refused() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t", 2)
        partitions = [{"partition_index": each, "timestamp": -1} for each in (0, 1, 0)]
        response = await Caller(cluster).query("ListOffsets", topics=[{"name": "t", "partitions": partitions}])
        assert [each.error_code for each in response.topics[0].partitions] == [42, 0, 42]


async def test_read_committed_ends_at_the_last_stable_offset() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.produce_in(await caller.transactional(), "t", "a", "b")
        assert await offset_of(caller, -1, isolation=1) == (0, 0)
        assert await offset_of(caller, -1) == (0, 2)


async def test_a_position_of_a_later_version_is_unsupported() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        assert await offset_of(Caller(cluster), -3, version=6) == (35, -1)
