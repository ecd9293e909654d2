"""Deletion of topics."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_a_topic_is_deleted_with_its_committed_offsets() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        caller = Caller(cluster)
        await caller.commit("g", "t", 3)
        topics = [{"name": None, "topic_id": topic_id}, {"name": "none"}, {"name": None, "topic_id": b"?" * 16}]
        responses = (await caller.query("DeleteTopics", topics=topics)).responses
        assert [each.error_code for each in responses] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        cluster.create_topic("t")
        assert await caller.committed("g", "t") == (0, -1)
