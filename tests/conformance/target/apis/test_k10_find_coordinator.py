"""Coordinators of groups and transactional ids."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_keys_have_the_coordinator_that_a_test_gave_them() -> None:
    async with running_cluster(3) as cluster:
        cluster.move_coordinator(CoordinatorKind.GROUP, "g", 3)
        coordinator = (await Caller(cluster).query("FindCoordinator", key_type=0, coordinator_keys=["g"])).coordinators[
            0
        ]
        old = await Caller(cluster).query("FindCoordinator", 3, key_type=0, key="g")
        assert (coordinator.node_id, coordinator.port) == (old.node_id, old.port) == (3, 9003)


async def test_coordinators_of_share_partitions_are_for_brokers() -> None:
    async with running_cluster() as cluster:
        coordinator = (await Caller(cluster).query("FindCoordinator", key_type=2, coordinator_keys=["g"])).coordinators[
            0
        ]
        assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.INVALID_REQUEST, -1)
