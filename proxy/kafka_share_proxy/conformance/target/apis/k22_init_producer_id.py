"""InitProducerId, with and without a transactional id (KIP-98, KIP-360)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import coordinator_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.transactions import NO_EPOCH, NO_ID, ProducerIdentity, Result
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

FENCED_SINCE = 4
"""Version that knows PRODUCER_FENCED."""


async def handle(call: TargetCall[messages.InitProducerIdRequest]) -> messages.InitProducerIdResponse:
    """Return a producer id and epoch."""
    result = _result(call)
    if isinstance(result, ErrorCode):
        if result == ErrorCode.PRODUCER_FENCED and call.version < FENCED_SINCE:
            result = ErrorCode.INVALID_PRODUCER_EPOCH
        return messages.InitProducerIdResponse(error_code=result, producer_id=NO_ID, producer_epoch=NO_EPOCH)
    return messages.InitProducerIdResponse(producer_id=result.producer_id, producer_epoch=result.epoch)


def _result(call: TargetCall[messages.InitProducerIdRequest]) -> Result:
    request, transactions = call.request, call.cluster.transactions
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    transactional_id = request.transactional_id
    if transactional_id is None:
        return transactions.new_identity()
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    error = coordinator_error(call.cluster, call.peer.node_id, transactional_id, CoordinatorKind.TRANSACTION)
    if error != ErrorCode.NONE:
        return error
    has_identity = request.producer_id != NO_ID
    expected = ProducerIdentity(request.producer_id, request.producer_epoch) if has_identity else None
    return transactions.begin_producer(transactional_id, request.transaction_timeout_ms, expected)
