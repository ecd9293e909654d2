"""Checks of requests for a group."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target.consumer_group import GroupRefusal
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import (
    classic_group_to_join,
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


async def test_types_do_not_mix() -> None:
    async with running_cluster() as cluster:
        cluster.create_topic("t")
        cluster.share.coordinator.add_group("share")
        await Caller(cluster).join_consumer("consumer", "m", "t")
        assert is_share_group(cluster, "share")
        for group_id in ("share", "consumer"):
            assert classic_group_to_join(cluster, group_id) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        with pytest.raises(GroupRefusal, match="is not a consumer group"):
            known_group(cluster, "share")
