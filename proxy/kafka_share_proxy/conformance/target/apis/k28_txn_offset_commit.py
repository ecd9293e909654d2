"""TxnOffsetCommit: offsets that are committed with the transaction (KIP-447, KIP-890)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.consumer_group import GroupRefusal
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.individual_commits import requested_offset
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.offset_commits import Committer, check_committer
from kafka_share_proxy.conformance.target.partition_access import find_topic, has_partition
from kafka_share_proxy.conformance.target.transactions import ProducerIdentity, offsets_partition
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition, TopicPartition

ADDS_SINCE = 5
"""Version that adds the group to the transaction by itself (KIP-890)."""
GROUP_VERSION = 9
"""Version of OffsetCommit whose checks apply to members of KIP-848 groups."""

_Request = messages.TxnOffsetCommitRequest
_Topic = messages.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Result = messages.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition

OLD_CODES = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}
"""Codes that producers do not know before KIP-1319, and what they get."""


async def handle(call: TargetCall[_Request]) -> messages.TxnOffsetCommitResponse:
    """Hold offsets until the transaction ends."""
    committer = _committer(call)
    topics = []
    for topic in call.request.topics:
        results = [_commit(call, topic.name, each, committer) for each in topic.partitions]
        topics.append(_Topic(name=topic.name, partitions=results))
    return messages.TxnOffsetCommitResponse(topics=topics)


def _committer(call: TargetCall[_Request]) -> Committer | ErrorCode:
    request = call.request
    error = group_error(call.cluster, call.peer.node_id, request.group_id)
    if error == ErrorCode.NONE:
        error = _transaction_error(call)
    if error != ErrorCode.NONE:
        return error
    if not any(_exists(call, topic) for topic in request.topics):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        return check_committer(
            call.cluster,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            GROUP_VERSION,
            request.producer_id,
        )
    except GroupRefusal as refused:
        return OLD_CODES.get(refused.error, refused.error)


def _exists(call: TargetCall[_Request], entry: _Request.TxnOffsetCommitRequestTopic) -> bool:
    """Return True if a partition of the topic exists: without one, the request does not create the group."""
    topic = find_topic(call.cluster, entry.name, b"", by_id=False)
    return has_partition(topic, [each.partition_index for each in entry.partitions])


def _transaction_error(call: TargetCall[_Request]) -> ErrorCode:
    request, transactions = call.request, call.cluster.transactions
    identity, partition = (
        ProducerIdentity(request.producer_id, request.producer_epoch),
        offsets_partition(request.group_id),
    )
    if call.version >= ADDS_SINCE:
        error = transactions.add(request.transactional_id, identity, [partition])
    else:
        error = transactions.verify(request.transactional_id, identity, partition)
        if error == ErrorCode.TRANSACTION_ABORTABLE:
            error = ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error


def _commit(
    call: TargetCall[_Request],
    name: str,
    requested: _Request.TxnOffsetCommitRequestPartition,
    committer: Committer | ErrorCode,
) -> _Result:
    result = _Result(partition_index=requested.partition_index)
    metadata = requested.committed_metadata or ""
    offset = requested_offset(requested.committed_offset, requested.committed_leader_epoch, metadata)
    topic = find_topic(call.cluster, name, b"", by_id=False)
    if isinstance(topic, ErrorCode) or topic.partition(requested.partition_index) is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif isinstance(committer, ErrorCode):
        result.error_code = committer
    elif isinstance(offset, ErrorCode):
        result.error_code = offset
    else:
        partition = TopicPartition(name, requested.partition_index)
        assigned = TopicIdPartition(topic.topic_id, requested.partition_index)
        code = committer.commit(partition, assigned, offset)
        result.error_code = OLD_CODES.get(code, code)
    return result
