"""DescribeTransactions (KIP-664)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import coordinator_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.DescribeTransactionsRequest
_Response = messages.DescribeTransactionsResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Describe transactions."""
    return _Response(transaction_states=[_described(call, each) for each in call.request.transactional_ids])


def _described(call: TargetCall[_Request], transactional_id: str) -> _Response.TransactionState:
    error = ErrorCode.INVALID_REQUEST
    if transactional_id:
        error = coordinator_error(call.cluster, call.peer.node_id, transactional_id, CoordinatorKind.TRANSACTION)
    producer = call.cluster.transactions.producers.get(transactional_id)
    if error == ErrorCode.NONE and producer is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if error != ErrorCode.NONE or producer is None:
        return _Response.TransactionState(transactional_id=transactional_id, error_code=error)
    topics: dict[str, list[int]] = {}
    for name, index in sorted(producer.partitions):
        topics.setdefault(name, []).append(index)
    return _Response.TransactionState(
        transactional_id=transactional_id,
        transaction_state=producer.state.value,
        transaction_timeout_ms=producer.timeout_ms,
        transaction_start_time_ms=producer.started_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[_Response.TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
