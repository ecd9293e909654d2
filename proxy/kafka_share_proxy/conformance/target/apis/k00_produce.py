"""Produce: one batch for each partition (ReplicaManager.appendRecords of Kafka 4.3)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import ConnectionEnds, TargetCall
from kafka_share_proxy.conformance.target.partition_access import endpoints_of, find_partition, find_topic, moved_leader
from kafka_share_proxy.conformance.target.partition_log import LogFull
from kafka_share_proxy.conformance.target.produced_batch import BatchRefused, ProducedBatch, check_batch
from kafka_share_proxy.conformance.target.producers import check_append, find_duplicate
from kafka_share_proxy.conformance.target.topics import HostedPartition, HostedTopic
from kafka_share_proxy.conformance.target.transactions import ProducerIdentity
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

LEADERS_SINCE, ABORTABLE_SINCE, ADDS_SINCE, TOPIC_IDS_SINCE = 10, 11, 12, 13

_Request = messages.ProduceRequest
_Result = messages.ProduceResponse.PartitionProduceResponse


async def handle(call: TargetCall[_Request]) -> messages.ProduceResponse | None:
    """Append to each partition. None for acks 0, for which an error ends the connection. Raises ConnectionEnds."""
    message = messages.ProduceResponse
    topics: list[messages.ProduceResponse.TopicProduceResponse] = []
    leaders: set[int] = set()
    for entry in call.request.topic_data:
        topic = _find(call, entry)
        results = [_partition(call, topic, data) for data in entry.partition_data]
        topics.append(
            message.TopicProduceResponse(name=entry.name, topic_id=entry.topic_id, partition_responses=results)
        )
        leaders.update(result.current_leader.leader_id for result in results)
    if call.request.acks == 0:
        if any(result.error_code for topic_results in topics for result in topic_results.partition_responses):
            raise ConnectionEnds
        return None
    nodes = [message.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in endpoints_of(call.cluster, leaders)]
    return message(responses=topics, node_endpoints=nodes)


def _find(call: TargetCall[_Request], entry: _Request.TopicProduceData) -> HostedTopic | ErrorCode:
    """Return the topic, or the error code. No producer writes to a view (views/README.md rule 48)."""
    if is_view(entry.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = find_topic(call.cluster, entry.name, entry.topic_id, by_id=call.version >= TOPIC_IDS_SINCE)
    is_of_view = isinstance(topic, HostedTopic) and topic.base is not None
    return ErrorCode.INVALID_TOPIC_EXCEPTION if is_of_view else topic


def _partition(
    call: TargetCall[_Request], topic: HostedTopic | ErrorCode, data: _Request.PartitionProduceData
) -> _Result:
    if call.request.acks not in (-1, 0, 1):
        return _refusal(data.index, ErrorCode.INVALID_REQUIRED_ACKS)
    if isinstance(topic, ErrorCode):
        return _missing(call, topic, data.index, topic)
    partition = find_partition(topic, data.index, call.peer.node_id)
    if isinstance(partition, ErrorCode):
        return _missing(call, topic, data.index, partition)
    if call.request.acks == -1 and _in_sync(call, partition) < topic.configs.min_insync_replicas:
        return _refusal(data.index, ErrorCode.NOT_ENOUGH_REPLICAS)
    checked = check_batch(data.records, call.version, topic.configs, call.cluster.clock.wall_ms())
    if isinstance(checked, BatchRefused):
        result = _rejected(data.index, checked)
        result.log_start_offset = partition.log.start if checked.is_appending else -1
        return result
    if checked.header.is_transactional:
        error = _transaction_error(call, topic.name, partition, checked)
        if error != ErrorCode.NONE:
            return _refusal(data.index, error)
    result = _append(partition, checked, new_transaction=call.version >= ADDS_SINCE and checked.header.is_transactional)
    if result.error_code == ErrorCode.NONE and topic.configs.log_append_time:
        result.log_append_time_ms = checked.header.max_timestamp
    return result


def _missing(call: TargetCall[_Request], topic: HostedTopic | ErrorCode, index: int, error: ErrorCode) -> _Result:
    result = _refusal(index, error)
    if call.version >= LEADERS_SINCE:
        leader = moved_leader(topic, index, result.error_code)
        result.current_leader = messages.ProduceResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return result


def _in_sync(call: TargetCall[_Request], partition: HostedPartition) -> int:
    return sum(call.cluster.is_up(node) for node in partition.replicas)


def _transaction_error(
    call: TargetCall[_Request], topic: str, partition: HostedPartition, batch: ProducedBatch
) -> ErrorCode:
    """Add the partition to the transaction, or check that the producer did (KIP-890, AddPartitionsToTxnManager)."""
    transactional_id, transactions = call.request.transactional_id, call.cluster.transactions
    if transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    entry = partition.log.producers.get(batch.header.producer_id)
    if entry is not None and entry.transaction_start >= 0 and entry.epoch == batch.header.producer_epoch:
        return ErrorCode.NONE
    identity = ProducerIdentity(batch.header.producer_id, batch.header.producer_epoch)
    where = TopicPartition(topic, partition.index)
    if call.version >= ADDS_SINCE:
        error = transactions.add(transactional_id, identity, [where])
    else:
        error = transactions.verify(transactional_id, identity, where)
        if error == ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_SINCE:
            error = ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error


def _append(partition: HostedPartition, batch: ProducedBatch, *, new_transaction: bool) -> _Result:
    log, header = partition.log, batch.header
    if header.producer_id >= 0:
        entry = log.producers.get(header.producer_id)
        duplicate = find_duplicate(entry, header)
        if duplicate is not None:
            return _Result(index=partition.index, base_offset=duplicate.base_offset, log_start_offset=log.start)
        error = check_append(entry, header, new_transaction=new_transaction)
        if error != ErrorCode.NONE:
            return _Result(index=partition.index, error_code=error, base_offset=-1, log_start_offset=log.start)
    try:
        base_offset = log.append(batch.data, header, partition.leader_epoch)
    except LogFull as full:
        return _rejected(partition.index, BatchRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(full)))
    partition.changed.notify()
    return _Result(index=partition.index, base_offset=base_offset, log_start_offset=log.start)


def _refusal(index: int, error: ErrorCode) -> _Result:
    return _Result(index=index, error_code=error, base_offset=-1)


def _rejected(index: int, refused: BatchRefused) -> _Result:
    entry = messages.ProduceResponse.BatchIndexAndErrorMessage
    return _Result(
        index=index,
        error_code=refused.error,
        base_offset=-1,
        error_message=refused.message,
        record_errors=[entry(batch_index=at, batch_index_error_message=text) for at, text in refused.indexes],
    )
