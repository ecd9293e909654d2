"""More partitions."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_topics_only_grow() -> None:
    async with running_cluster(2) as cluster:
        topic = cluster.create_topic("t", 2)
        codes = []
        for count, assignments in (
            (1, None),
            (2, None),
            (4, [{"broker_ids": [1]}]),
            (3, [{"broker_ids": [2]}]),
            (5, None),
        ):
            topics = [{"name": "t", "count": count, "assignments": assignments}]
            codes.append((await Caller(cluster).query("CreatePartitions", topics=topics)).results[0].error_code)
        assert codes == [
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            0,
            0,
        ]
        assert [each.index for each in topic.partitions] == [0, 1, 2, 3, 4]
        assert topic.partitions[2].replicas == [2]
