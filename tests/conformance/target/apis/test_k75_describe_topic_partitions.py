"""Topics in pages."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_the_cursor_continues_after_the_limit() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("a", 3)
        cluster.create_topic("b", 1)
        caller = Caller(cluster)
        first = await caller.query("DescribeTopicPartitions", topics=[], response_partition_limit=2)
        assert [(each.name, len(each.partitions)) for each in first.topics] == [("a", 2)]
        cursor = {"topic_name": first.next_cursor.topic_name, "partition_index": first.next_cursor.partition_index}
        rest = await caller.query("DescribeTopicPartitions", topics=[], cursor=cursor)
        assert [[each.partition_index for each in topic.partitions] for topic in rest.topics] == [[2], [0]]
        assert rest.next_cursor is None


async def test_unknown_topics_have_an_error() -> None:
    async with running_cluster() as cluster:
        response = await Caller(cluster).query("DescribeTopicPartitions", topics=[{"name": "t"}])
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_view_is_described_if_it_is_named() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        described = []
        for names in (["__view.r2.t", "__view.r0.t"], []):
            topics = [{"name": each} for each in names]
            response = await caller.query("DescribeTopicPartitions", topics=topics, response_partition_limit=9)
            described.append([(each.name, each.error_code, len(each.partitions)) for each in response.topics])
            await caller.commit("g", "__view.r2.t", 1)
        assert described == [
            [("__view.r0.t", ErrorCode.INVALID_TOPIC_EXCEPTION, 0), ("__view.r2.t", 0, 2)],
            [("t", 0, 1)],
        ]
