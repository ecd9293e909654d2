"""Clients that may commit."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.consumer_group import GroupRefusal
from kafka_share_proxy.conformance.target.individual_commits import CommittedOffset, RequestedOffset
from kafka_share_proxy.conformance.target.offset_commits import check_committer
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition, TopicPartition

from tests.support.target_caller import Caller, advance, running_cluster


async def test_a_late_member_commits_what_it_was_assigned_before() -> None:
    async with running_cluster() as cluster:
        topic_id = cluster.create_topic("t").topic_id
        caller = Caller(cluster)
        epoch = (await caller.join_consumer("g", "m", "t")).member_epoch
        await advance(cluster, 1)
        cluster.create_topic("u")
        newer = await caller.beat("g", "m", epoch, subscribed_topic_names=["t", "u"])
        assert newer.member_epoch == epoch + 1
        committer = check_committer(cluster, "g", "m", None, epoch, 9)
        error_codes = []
        for name, each in (("t", topic_id), ("u", cluster.topics.by_name["u"].topic_id)):
            offset = RequestedOffset(CommittedOffset(1))
            error_codes.append(committer.commit(TopicPartition(name, 0), TopicIdPartition(each, 0), offset))
        assert error_codes == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_an_unknown_group_has_the_code_of_the_version(version: int, code: ErrorCode) -> None:
    async with running_cluster() as cluster:
        with pytest.raises(GroupRefusal) as refused:
            check_committer(cluster, "g", "m", None, 1, version)
        assert refused.value.error == code
