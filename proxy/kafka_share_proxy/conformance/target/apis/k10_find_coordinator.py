"""FindCoordinator: the node of a group, transactional id or share partition."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

LIST_SINCE = 4
KINDS = (CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION)
"""Key types that are served. Only brokers request coordinators of share partitions."""


async def handle(call: TargetCall[messages.FindCoordinatorRequest]) -> messages.FindCoordinatorResponse:
    """Return the coordinators of the keys."""
    request, cluster = call.request, call.cluster
    if call.version >= LIST_SINCE:
        keys = request.coordinator_keys
        return messages.FindCoordinatorResponse(coordinators=[_find(cluster, request.key_type, key) for key in keys])
    coordinator = _find(cluster, request.key_type, request.key)
    return messages.FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find(cluster: TargetCluster, key_type: int, key: str) -> messages.FindCoordinatorResponse.Coordinator:
    node_id, error = UNKNOWN_NODE, ErrorCode.INVALID_REQUEST
    if key_type in KINDS:
        node_id, error = (
            cluster.coordinators.node_of(CoordinatorKind(key_type), key),
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
    host, port = cluster.address(node_id)
    if node_id != UNKNOWN_NODE:
        error = ErrorCode.NONE
    text = None if error == ErrorCode.NONE else error.name
    return messages.FindCoordinatorResponse.Coordinator(
        key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=text
    )
