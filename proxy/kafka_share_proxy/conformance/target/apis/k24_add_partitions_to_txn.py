"""AddPartitionsToTxn of producers. Versions from 4 on are for brokers."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.group_access import coordinator_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import find_topic, has_partition
from kafka_share_proxy.conformance.target.transactions import ProducerIdentity
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

FENCED_SINCE = 2

_Request = messages.AddPartitionsToTxnRequest
_Response = messages.AddPartitionsToTxnResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Add all partitions, or none if one is unknown."""
    topics = call.request.v3_and_below_topics
    requested = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    errors = {each: _partition_error(call, each) for each in requested}
    if any(errors.values()):
        codes = {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in errors.items()}
    else:
        codes = dict.fromkeys(requested, _add(call, requested))
    topic_result = _Response.AddPartitionsToTxnTopicResult
    partition_result = _Response.AddPartitionsToTxnPartitionResult
    return _Response(
        results_by_topic_v3_and_below=[
            topic_result(
                name=topic.name,
                results_by_partition=[
                    partition_result(
                        partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _partition_error(call: TargetCall[_Request], partition: TopicPartition) -> ErrorCode:
    if is_view(partition.topic):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = find_topic(call.cluster, partition.topic, b"", by_id=False)
    return ErrorCode.NONE if has_partition(topic, [partition.partition]) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _add(call: TargetCall[_Request], partitions: list[TopicPartition]) -> ErrorCode:
    request = call.request
    transactional_id = request.v3_and_below_transactional_id
    error = coordinator_error(call.cluster, call.peer.node_id, transactional_id, CoordinatorKind.TRANSACTION)
    if error != ErrorCode.NONE:
        return error
    identity = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    error = call.cluster.transactions.add(transactional_id, identity, partitions)
    if error == ErrorCode.PRODUCER_FENCED and call.version < FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
