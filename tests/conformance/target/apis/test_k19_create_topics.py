"""Creation of topics."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def create(caller: Caller, **topic: object) -> int:
    full = {"name": "t", "num_partitions": 1, "replication_factor": 1, **topic}
    return int((await caller.query("CreateTopics", topics=[full])).topics[0].error_code)


async def test_wrong_topics_are_refused_with_their_codes() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("a.b")
        caller = Caller(cluster)
        assert await create(caller, name="a.b") == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await create(caller, name="a_b") == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await create(caller, num_partitions=0) == ErrorCode.INVALID_PARTITIONS
        assert await create(caller, replication_factor=2) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await create(caller, configs=[{"name": "retention.ms", "value": "x"}]) == ErrorCode.INVALID_CONFIG
        assert (
            await create(caller, assignments=[{"partition_index": 0, "broker_ids": [1]}]) == ErrorCode.INVALID_REQUEST
        )
        assert list(cluster.topics.by_name) == ["a.b"]


async def test_defaults_and_assignments_are_applied() -> None:
    async with running_cluster(2) as cluster:
        caller = Caller(cluster)
        assigned = [{"partition_index": 0, "broker_ids": [2, 1]}]
        assert await create(caller, num_partitions=-1, replication_factor=-1, assignments=assigned) == ErrorCode.NONE
        assert await create(caller, name="u", num_partitions=-1, replication_factor=-1) == ErrorCode.NONE
        assert [cluster.partition(each, 0).replicas for each in "t"] == [[2, 1]]


async def test_a_topic_is_only_validated_on_request() -> None:
    async with running_cluster() as cluster:
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 1}
        response = await Caller(cluster).query("CreateTopics", topics=[topic], validate_only=True)
        assert (response.topics[0].error_code, response.topics[0].num_partitions) == (0, 2)
        assert cluster.topics.with_name("t") is None
