"""Checks of requests for a group."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.cluster_settings import ClusterSettings
from kafka_share_proxy.conformance.target.consumer_group import GroupRefusal
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import (
    check_size,
    classic_group_to_join,
    consumer_group_to_join,
    coordinator_error,
    group_error,
    is_share_group,
    known_group,
)
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_only_the_coordinator_serves_a_group() -> None:
    async with running_cluster(2) as cluster:
        cluster.move_coordinator(CoordinatorKind.GROUP, "g", 2)
        assert [coordinator_error(cluster, each, "g") for each in (1, 2)] == [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
        assert group_error(cluster, 1, "") == ErrorCode.INVALID_GROUP_ID
        cluster.take_node_down(1)
        cluster.take_node_down(2)
        assert coordinator_error(cluster, 2, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_share_group_has_no_other_members() -> None:
    async with running_cluster() as cluster:
        cluster.share.coordinator.add_group("share")
        assert is_share_group(cluster, "share")
        assert classic_group_to_join(cluster, "share") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        with pytest.raises(GroupRefusal, match="is not a consumer group"):
            consumer_group_to_join(cluster, "share")
        with pytest.raises(GroupRefusal, match="is not a consumer group"):
            known_group(cluster, "share")


async def test_a_full_group_accepts_members_that_it_knows() -> None:
    async with running_cluster(settings=ClusterSettings(group_size_max=1)) as cluster:
        cluster.create_topic("t")
        await Caller(cluster).join_consumer("g", "m", "t", instance_id="i")
        group = consumer_group_to_join(cluster, "g")
        check_size(cluster, group, "m", None)
        check_size(cluster, group, "other", "i")
        with pytest.raises(GroupRefusal, match="maximum capacity of 1"):
            check_size(cluster, group, "other", None)
        assert (await Caller(cluster).join("g", "other")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
