"""Start offsets and lags of share groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, batch, running_cluster


async def test_the_lag_counts_what_is_not_settled() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        cluster.group_configs.store("g", {"share.auto.offset.reset": "earliest"})
        cluster.share.coordinator.add_group("g")
        caller = Caller(cluster)
        await caller.produce("t", batch("a", "b", "c"))
        await caller.share_fetch("g", topic_id, 0)
        found = []
        for _ in range(2):
            groups = [{"group_id": "g", "topics": None}]
            entry = (await caller.ask("DescribeShareGroupOffsets", groups=groups)).groups[0].topics[0].partitions[0]
            found.append((entry.start_offset, entry.lag))
            await caller.share_acknowledge("g", topic_id, 1, 0, 0, 1)
        assert found == [(-1, -1), (1, 2)]
        unknown = await caller.ask("DescribeShareGroupOffsets", groups=[{"group_id": "none", "topics": None}])
        assert (unknown.groups[0].error_code, list(unknown.groups[0].topics)) == (ErrorCode.NONE, [])
