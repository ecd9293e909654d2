"""Start offsets and lags of share groups."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
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
        offsets = []
        for _ in range(2):
            groups = [{"group_id": "g", "topics": None}]
            entry = (await caller.query("DescribeShareGroupOffsets", groups=groups)).groups[0].topics[0].partitions[0]
            offsets.append((entry.start_offset, entry.lag))
            await caller.share_acknowledge("g", topic_id, 1, 0, 0, 1)
        assert offsets == [(-1, -1), (1, 2)]
        unknown = await caller.query("DescribeShareGroupOffsets", groups=[{"group_id": "none", "topics": None}])
        assert (unknown.groups[0].error_code, list(unknown.groups[0].topics)) == (ErrorCode.NONE, [])


async def test_offsets_of_named_topics_are_described_at_any_node() -> None:
    async with running_cluster(2) as cluster:
        cluster.create_topic("t")
        cluster.move_coordinator(CoordinatorKind.GROUP, "g", 1)
        coordinator, other = Caller(cluster), Caller(cluster, node_id=2)
        partitions = [{"partition_index": 0, "start_offset": 0}]
        topics = [{"topic_name": "t", "partitions": partitions}]
        await coordinator.query("AlterShareGroupOffsets", group_id="g", topics=topics)
        described_groups = [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0]}]}]
        group = (await other.query("DescribeShareGroupOffsets", groups=described_groups)).groups[0]
        assert (group.error_code, group.topics[0].partitions[0].start_offset) == (ErrorCode.NONE, 0)
        everything = await other.query("DescribeShareGroupOffsets", groups=[{"group_id": "g", "topics": None}])
        assert everything.groups[0].error_code == ErrorCode.NOT_COORDINATOR
