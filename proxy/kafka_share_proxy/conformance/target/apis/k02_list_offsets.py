"""ListOffsets: by position and by timestamp (Partition.fetchOffsetForTimestamp of Kafka 4.3)."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import find_partition, find_topic
from kafka_share_proxy.conformance.target.partition_log import PartitionLog
from kafka_share_proxy.conformance.target.topics import HostedPartition
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

READ_COMMITTED = 1


class OffsetPosition(IntEnum):
    """Timestamps that name a position (ListOffsetsRequest)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


POSITIONS_SINCE = {OffsetPosition.MAX_TIMESTAMP: 7, OffsetPosition.EARLIEST_LOCAL: 8, OffsetPosition.LATEST_TIERED: 9}
"""Versions that a position needs."""
EPOCH_SINCE = 4
"""Version since which the response has the leader epoch (KIP-320)."""

_Request = messages.ListOffsetsRequest
_Result = messages.ListOffsetsResponse.ListOffsetsPartitionResponse


async def handle(call: TargetCall[_Request]) -> messages.ListOffsetsResponse:
    """Return an offset for each partition."""
    message = messages.ListOffsetsResponse
    topics = []
    for entry in call.request.topics:
        topic = find_topic(call.cluster, entry.name, b"", by_id=False)
        counts = Counter(each.partition_index for each in entry.partitions)
        results = []
        for each in entry.partitions:
            partition = find_partition(topic, each.partition_index, call.peer.node_id, each.current_leader_epoch)
            if counts[each.partition_index] > 1:
                partition = ErrorCode.INVALID_REQUEST
            result = _find(call, partition, each)
            if call.version < EPOCH_SINCE:
                result.leader_epoch = -1
            results.append(result)
        topics.append(message.ListOffsetsTopicResponse(name=entry.name, partitions=results))
    return message(topics=topics)


def _find(
    call: TargetCall[_Request], partition: HostedPartition | ErrorCode, requested: _Request.ListOffsetsPartition
) -> _Result:
    result = _Result(partition_index=requested.partition_index)
    if isinstance(partition, ErrorCode):
        result.error_code = partition
        return result
    timestamp, log = requested.timestamp, partition.log
    if timestamp < 0 and not _is_position(timestamp, call.version):
        result.error_code = ErrorCode.UNSUPPORTED_VERSION
        return result
    last = log.stable_offset if call.request.isolation_level == READ_COMMITTED else log.end
    if timestamp == OffsetPosition.LATEST:
        result.offset, result.leader_epoch = last, partition.leader_epoch
    elif timestamp in (OffsetPosition.EARLIEST, OffsetPosition.EARLIEST_LOCAL):
        result.offset, result.leader_epoch = log.start, log.epoch_at(log.start)
    elif timestamp != OffsetPosition.LATEST_TIERED:
        _set_by_timestamp(result, log, timestamp, last)
    return result


def _is_position(timestamp: int, version: int) -> bool:
    known = timestamp in set(OffsetPosition)
    return known and version >= POSITIONS_SINCE.get(OffsetPosition(timestamp), 0)


def _set_by_timestamp(result: _Result, log: PartitionLog, timestamp: int, last: int) -> None:
    is_max = timestamp == OffsetPosition.MAX_TIMESTAMP
    record = log.find_max_timestamp() if is_max else log.find_timestamp(timestamp)
    if record is not None and record[1] < last:
        result.timestamp, result.offset = record
        result.leader_epoch = log.epoch_at(result.offset)
