"""Ends of leader epochs."""

from __future__ import annotations

from tests.support.target_caller import Caller, batch, running_cluster


async def test_epochs_end_where_the_next_one_begins() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.produce("t", batch("a"))
        cluster.bump_leader_epoch("t", 0)
        await caller.produce("t", batch("b", "c"))
        epoch_ends = []
        for epoch in (0, 1, 2):
            topics = [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": epoch}]}]
            partition = (await caller.query("OffsetForLeaderEpoch", topics=topics)).topics[0].partitions[0]
            epoch_ends.append((partition.leader_epoch, partition.end_offset))
        assert epoch_ends == [(0, 1), (1, 3), (-1, -1)]
