"""Deletion of committed offsets."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def delete(caller: Caller, group: str) -> tuple[int, list[int]]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    response = await caller.query("OffsetDelete", group_id=group, topics=topics)
    return response.error_code, [each.error_code for topic in response.topics for each in topic.partitions]


async def test_offsets_of_subscribed_topics_stay() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("g", "t", 1)
        assert await delete(caller, "g") == (0, [0])
        assert await caller.committed("g", "t") == (0, -1)
        await caller.join_consumer("k", "m", "t")
        assert await delete(caller, "k") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        await caller.only_member("unreadable")
        assert await delete(caller, "unreadable") == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
        assert await delete(caller, "none") == (ErrorCode.GROUP_ID_NOT_FOUND, [])
