"""DeleteRecords (KIP-107)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import find_partition, find_topic
from kafka_share_proxy.views.model.names import is_view
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

END_OF_LOG = -1

_Request = messages.DeleteRecordsRequest
_Result = messages.DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(call: TargetCall[_Request]) -> messages.DeleteRecordsResponse:
    """Move the starts of logs."""
    topics = []
    for topic in call.request.topics:
        results = [_delete(call, topic.name, each) for each in topic.partitions]
        topics.append(messages.DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return messages.DeleteRecordsResponse(topics=topics)


def _delete(call: TargetCall[_Request], name: str, requested: _Request.DeleteRecordsPartition) -> _Result:
    result = _Result(partition_index=requested.partition_index, low_watermark=-1)
    if is_view(name):
        result.error_code = ErrorCode.POLICY_VIOLATION
        return result
    topic = find_topic(call.cluster, name, b"", by_id=False)
    partition = find_partition(topic, requested.partition_index, call.peer.node_id)
    if isinstance(partition, ErrorCode):
        result.error_code = partition
        return result
    log = partition.log
    offset = log.end if requested.offset == END_OF_LOG else requested.offset
    if not 0 <= offset <= log.end:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return result
    if offset > log.start:
        call.cluster.delete_records(name, requested.partition_index, offset)
    result.low_watermark = log.start
    return result
