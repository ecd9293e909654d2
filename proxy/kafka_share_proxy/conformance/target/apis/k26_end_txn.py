"""EndTxn, with a new epoch for the next transaction from version 5 on (KIP-890)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import coordinator_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.transactions import ProducerIdentity, Result
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

FENCED_SINCE, BUMPS_SINCE = 2, 5


async def handle(call: TargetCall[messages.EndTxnRequest]) -> messages.EndTxnResponse:
    """Commit or abort."""
    result = _result(call)
    if isinstance(result, ErrorCode):
        if result == ErrorCode.PRODUCER_FENCED and call.version < FENCED_SINCE:
            result = ErrorCode.INVALID_PRODUCER_EPOCH
        return messages.EndTxnResponse(error_code=result)
    if call.version < BUMPS_SINCE:
        return messages.EndTxnResponse()
    return messages.EndTxnResponse(producer_id=result.producer_id, producer_epoch=result.epoch)


def _result(call: TargetCall[messages.EndTxnRequest]) -> Result:
    request = call.request
    error = coordinator_error(call.cluster, call.peer.node_id, request.transactional_id, CoordinatorKind.TRANSACTION)
    if error != ErrorCode.NONE:
        return error
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    bumps = call.version >= BUMPS_SINCE
    return call.cluster.transactions.end(request.transactional_id, identity, commits=request.committed, bumps=bumps)
