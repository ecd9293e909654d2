"""DescribeProducers (KIP-664)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.partition_access import find_partition, find_topic
from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.DescribeProducersRequest
_Response = messages.DescribeProducersResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Return the producers of partitions that the node leads."""
    topics = []
    for requested in call.request.topics:
        topic = find_topic(call.cluster, requested.name, b"", by_id=False)
        partitions = [_partition(call, topic, index) for index in requested.partition_indexes]
        topics.append(_Response.TopicResponse(name=requested.name, partitions=partitions))
    return _Response(topics=topics)


def _partition(call: TargetCall[_Request], topic: HostedTopic | ErrorCode, index: int) -> _Response.PartitionResponse:
    partition = find_partition(topic, index, call.peer.node_id)
    if isinstance(partition, ErrorCode):
        return _Response.PartitionResponse(partition_index=index, error_code=partition)
    return _Response.PartitionResponse(
        partition_index=index,
        active_producers=[
            _Response.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_start,
            )
            for entry in partition.log.producers.values()
        ],
    )
