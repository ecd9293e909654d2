"""DescribeCluster (KIP-700)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.authorized_operations import CLUSTER_OPERATIONS
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.acl_operations import NO_BITS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

ENDPOINT_TYPES_SINCE = 1
BROKERS, CONTROLLERS = 1, 2

_Response = messages.DescribeClusterResponse


async def handle(call: TargetCall[messages.DescribeClusterRequest]) -> _Response:
    """Return the nodes that are up."""
    request, cluster = call.request, call.cluster
    if call.version >= ENDPOINT_TYPES_SINCE and request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return _Response(error_code=code, error_message="The request was sent to an endpoint of brokers.")
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_BITS
    brokers = []
    for node_id in cluster.nodes_up:
        host, port = cluster.address(node_id)
        brokers.append(_Response.DescribeClusterBroker(broker_id=node_id, host=host, port=port))
    return _Response(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
