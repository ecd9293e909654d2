"""The nodes that are up."""

from __future__ import annotations

from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.target_caller import Caller, running_cluster


async def test_nodes_and_controller_are_those_that_are_up() -> None:
    async with running_cluster(3) as cluster:
        cluster.take_node_down(1)
        response = await Caller(cluster, 2).query("DescribeCluster", include_cluster_authorized_operations=True)
        assert ([each.broker_id for each in response.brokers], response.controller_id) == ([2, 3], 2)
        assert response.cluster_authorized_operations > 0
        wrong = await Caller(cluster, 2).query("DescribeCluster", endpoint_type=2)
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
