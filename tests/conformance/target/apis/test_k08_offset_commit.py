"""Commits of groups, and without one."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_a_client_without_a_group_commits_while_the_group_is_empty() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        assert await caller.commit("g", "t", 3) == ErrorCode.NONE
        await caller.only_member("g")
        assert await caller.commit("g", "t", 4) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await caller.committed("g", "t") == (0, 3)


async def test_members_commit_in_their_generation_only() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        member_id = await caller.only_member("g")
        codes = [await caller.commit("g", "t", 5, member_id=member_id, epoch=each) for each in (1, 2)]
        assert codes == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]
        assert await caller.commit("none", "t", 5, member_id="m", epoch=1) == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_commit_of_unknown_topics_creates_no_group() -> None:
    async with running_cluster() as cluster:
        assert await Caller(cluster).commit("g", "none", 3) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.groups.get("g") is None


async def test_partitions_are_refused_one_by_one() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        partitions = [{"partition_index": 0, "committed_metadata": "m" * 5000}, {"partition_index": 1}]
        topics = [
            {"topic_id": topic_id, "partitions": partitions},
            {"topic_id": b"?" * 16, "partitions": partitions[1:]},
        ]
        response = await Caller(cluster).query("OffsetCommit", 10, group_id="g", topics=topics)
        codes = [[each.error_code for each in topic.partitions] for topic in response.topics]
        assert codes == [
            [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [ErrorCode.UNKNOWN_TOPIC_ID],
        ]
