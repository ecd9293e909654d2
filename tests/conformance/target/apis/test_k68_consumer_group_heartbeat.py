"""Heartbeats of KIP-848 groups."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, advance, running_cluster


def partitions_of(response: object) -> list[int]:
    return [index for each in response.assignment.topic_partitions for index in each.partitions]  # type: ignore[attr-defined]


async def test_partitions_move_when_their_owner_has_revoked_them() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t", 2).topic_id
        caller = Caller(cluster)
        first = await caller.join_consumer("g", "m1", "t")
        assert partitions_of(first) == [0, 1]
        await advance(cluster, 1)
        assert partitions_of(await caller.join_consumer("g", "m2", "t")) == []
        revoking = await caller.beat("g", "m1", first.member_epoch)
        retained_partitions = partitions_of(revoking)
        assert (len(retained_partitions), revoking.member_epoch) == (1, first.member_epoch)
        owned = [{"topic_id": topic_id, "partitions": retained_partitions}]
        done = await caller.beat("g", "m1", first.member_epoch, topic_partitions=owned)
        assert done.member_epoch == first.member_epoch + 1
        assert partitions_of(await caller.beat("g", "m2", done.member_epoch)) == [1 - retained_partitions[0]]


async def test_a_member_without_heartbeat_is_fenced() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        caller = Caller(cluster)
        epoch = (await caller.join_consumer("g", "m", "t")).member_epoch
        await advance(cluster, 44)
        assert (await caller.beat("g", "m", epoch)).error_code == ErrorCode.NONE
        assert (await caller.beat("g", "m", epoch + 1)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        await advance(cluster, 45)
        assert (await caller.beat("g", "m", epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_invalid_requests_are_refused() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        codes = [
            (await caller.beat("g", "", 0)).error_code,
            (await caller.beat("g", "m", 0)).error_code,
            (await caller.beat("g", "m", -3)).error_code,
            (await caller.beat("g", "m", 1)).error_code,
            (await caller.join_consumer("g", "m", "t", server_assignor="none")).error_code,
            (await caller.join_consumer("g", "m", "t", subscribed_topic_regex="(")).error_code,
        ]
        assert codes == [42, 42, 42, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_ASSIGNOR, 128]


async def test_a_regular_expression_finds_topics_that_are_created_later() -> None:
    async with running_cluster() as cluster:
        caller = Caller(cluster)
        joined = await caller.join_consumer("g", "m", "none", subscribed_topic_names=None, subscribed_topic_regex="a.*")
        assert partitions_of(joined) == []
        cluster.create_topic("abc")
        await advance(cluster, 1)
        assert partitions_of(await caller.beat("g", "m", joined.member_epoch)) == [0]


async def test_a_member_of_a_view_creates_it() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        joined = await Caller(cluster).join_consumer("g", "m", "__view.r2.t")
        view = cluster.topics.by_name["__view.r2.t"]
        assigned = joined.assignment.topic_partitions[0]
        assert (bytes(assigned.topic_id), sorted(assigned.partitions)) == (view.topic_id, [0, 1])
