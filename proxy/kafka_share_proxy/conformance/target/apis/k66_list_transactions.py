"""ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import re

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.transactions import TransactionalProducer
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

_Request = messages.ListTransactionsRequest
_Response = messages.ListTransactionsResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """List the transactions that this node coordinates."""
    request = call.request
    try:
        pattern = re.compile(request.transactional_id_pattern or "")
    except re.error:
        return _Response(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    coordinators = call.cluster.coordinators
    listed = [
        producer
        for transactional_id, producer in call.cluster.transactions.producers.items()
        if coordinators.node_of(CoordinatorKind.TRANSACTION, transactional_id) == call.peer.node_id
        and _matches(request, producer, call.cluster.clock.wall_ms())
        and (not request.transactional_id_pattern or pattern.fullmatch(transactional_id))
    ]
    entry = _Response.TransactionState
    return _Response(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES],
        transaction_states=[
            entry(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in listed
        ],
    )


def _matches(request: _Request, producer: TransactionalProducer, now_ms: int) -> bool:
    if request.producer_id_filters and producer.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and producer.state.value not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - producer.started_ms > request.duration_filter
