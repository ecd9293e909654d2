"""OffsetForLeaderEpoch (KIP-320)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import find_partition, find_topic
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.OffsetForLeaderEpochRequest
_Result = messages.OffsetForLeaderEpochResponse.EpochEndOffset


async def handle(call: TargetCall[_Request]) -> messages.OffsetForLeaderEpochResponse:
    """Return where leader epochs end."""
    message = messages.OffsetForLeaderEpochResponse
    topics = []
    for entry in call.request.topics:
        results = [_find(call, entry.topic, each) for each in entry.partitions]
        topics.append(message.OffsetForLeaderTopicResult(topic=entry.topic, partitions=results))
    return message(topics=topics)


def _find(call: TargetCall[_Request], name: str, requested: _Request.OffsetForLeaderPartition) -> _Result:
    topic = find_topic(call.cluster, name, b"", by_id=False)
    partition = find_partition(topic, requested.partition, call.peer.node_id, requested.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return _Result(partition=requested.partition, error_code=partition)
    end = partition.log.end_of_epoch(requested.leader_epoch)
    return _Result(partition=requested.partition, leader_epoch=end.epoch, end_offset=end.offset)
