"""Committed offsets, and those of open transactions."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_all_topics_of_several_groups_are_returned() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        await caller.commit("g", "t", 3)
        groups = [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": None}]
        fetched_groups = (await caller.query("OffsetFetch", 8, groups=groups)).groups
        assert [[topic.name for topic in each.topics] for each in fetched_groups] == [["t"], []]


async def test_version_1_has_an_error_in_each_partition() -> None:
    async with running_cluster(2) as cluster:
        node_id = cluster.coordinators.node_of(0, "g")  # type: ignore[arg-type]
        topics = [{"name": "t", "partition_indexes": [0]}]
        response = await Caller(cluster, 3 - node_id).query("OffsetFetch", 1, group_id="g", topics=topics)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_offsets_of_an_open_transaction_are_unstable_until_it_ends() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        producer = await caller.transactional()
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        identity = {"transactional_id": "x", "producer_id": producer[0], "producer_epoch": producer[1]}
        await caller.query("TxnOffsetCommit", group_id="g", topics=topics, **identity)
        assert await caller.committed("g", "t", require_stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await caller.committed("g", "t") == (0, -1)
        await caller.end(producer)
        assert await caller.committed("g", "t", require_stable=True) == (0, 7)


async def test_a_member_of_a_kip_848_group_sends_its_epoch() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        epoch = (await caller.join_consumer("g", "m", "t")).member_epoch
        codes = []
        for member_id, each in (("m", epoch), ("m", epoch + 1), ("other", epoch)):
            groups = [{"group_id": "g", "topics": None, "member_id": member_id, "member_epoch": each}]
            codes.append((await caller.query("OffsetFetch", 9, groups=groups)).groups[0].error_code)
        assert codes == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID]
