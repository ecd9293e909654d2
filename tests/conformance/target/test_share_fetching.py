"""Acquisition of records."""

from __future__ import annotations

from tests.support.target_caller import Caller, batch, running_cluster


def acquired(response: object) -> list[tuple[int, int]]:
    partitions = [each for topic in response.responses for each in topic.partitions]  # type: ignore[attr-defined]
    return [(a.first_offset, a.last_offset) for each in partitions for a in each.acquired_records]


async def test_record_limit_is_exact_and_batch_optimized_is_not() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        caller = Caller(cluster)
        await caller.produce("t", batch("a", "b", "c"))
        for group, mode, expected in (("g", 0, [(0, 2)]), ("h", 1, [(0, 0)])):
            cluster.group_configs.store(group, {"share.auto.offset.reset": "earliest"})
            response = await caller.share_fetch(group, topic_id, 0, max_records=1, share_acquire_mode=mode)
            assert acquired(response) == expected


async def test_read_committed_skips_aborted_records() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        settings = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
        cluster.group_configs.store("g", settings)
        caller = Caller(cluster)
        producer = await caller.transactional()
        await caller.produce_in(producer, "t", "a", "b")
        assert acquired(await caller.share_fetch("g", topic_id, 0)) == []
        await caller.end(producer, commits=False)
        await caller.produce("t", batch("c"))
        assert acquired(await caller.share_fetch("g", topic_id, 1)) in ([(2, 3)], [(2, 2), (3, 3)])
