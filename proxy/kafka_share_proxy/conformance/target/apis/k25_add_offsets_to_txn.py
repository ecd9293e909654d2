"""AddOffsetsToTxn (KIP-98)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import coordinator_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.transactions import ProducerIdentity, offsets_partition
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

FENCED_SINCE = 2


async def handle(call: TargetCall[messages.AddOffsetsToTxnRequest]) -> messages.AddOffsetsToTxnResponse:
    """Add the offsets of a group to the transaction."""
    request = call.request
    error = coordinator_error(call.cluster, call.peer.node_id, request.transactional_id, CoordinatorKind.TRANSACTION)
    if error == ErrorCode.NONE:
        identity = ProducerIdentity(request.producer_id, request.producer_epoch)
        partitions = [offsets_partition(request.group_id)]
        error = call.cluster.transactions.add(request.transactional_id, identity, partitions)
    if error == ErrorCode.PRODUCER_FENCED and call.version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return messages.AddOffsetsToTxnResponse(error_code=error)
