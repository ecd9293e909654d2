"""DescribeShareGroupOffsets (KIP-932, KIP-1226)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.topics import HostedTopic
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

NOT_KNOWN = -1

_Request = messages.DescribeShareGroupOffsetsRequest
_Response = messages.DescribeShareGroupOffsetsResponse
_Topic = _Response.DescribeShareGroupOffsetsResponseTopic
_Partition = _Response.DescribeShareGroupOffsetsResponsePartition


async def handle(call: TargetCall[_Request]) -> _Response:
    """Return start offsets and lags."""
    return _Response(groups=[_group(call, each) for each in call.request.groups])


def _group(
    call: TargetCall[_Request], requested: _Request.DescribeShareGroupOffsetsRequestGroup
) -> _Response.DescribeShareGroupOffsetsResponseGroup:
    group_id = requested.group_id
    if requested.topics is None:
        error = group_error(call.cluster, call.peer.node_id, group_id)
        if error != ErrorCode.NONE:
            return _Response.DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=[], error_code=error)
        described = list(_all(call, group_id))
    else:  # read from the state of the share partitions, at any node (GroupCoordinatorService)
        described = [(topic.topic_name, topic.partitions) for topic in requested.topics]
    topics = [_topic(call, group_id, name, partitions) for name, partitions in described]
    return _Response.DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)


def _all(call: TargetCall[_Request], group_id: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the topics that the group subscribes to or has state of."""
    coordinator, topics = call.cluster.share.coordinator, call.cluster.topics
    partitions: dict[str, set[int]] = {}
    for key in coordinator.keys_of(group_id):
        topic = topics.with_id(key.topic_id)
        if topic is not None:
            partitions.setdefault(topic.name, set()).add(key.partition)
    group = coordinator.group(group_id)
    for name in () if group is None else group.subscribed_topics():
        topic = topics.with_name(name)
        if topic is not None:
            partitions.setdefault(name, set()).update(range(len(topic.partitions)))
    for name in sorted(partitions):
        yield name, sorted(partitions[name])


def _topic(call: TargetCall[_Request], group_id: str, name: str, indexes: Iterable[int]) -> _Topic:
    topic = call.cluster.topics.with_name(name)
    if topic is None:
        return _Topic(topic_name=name, partitions=[_nothing(index) for index in indexes])
    described = [_partition(call, topic, ShareKey(group_id, topic.topic_id, index)) for index in indexes]
    return _Topic(topic_name=name, topic_id=topic.topic_id, partitions=described)


def _partition(call: TargetCall[_Request], topic: HostedTopic, key: ShareKey) -> _Partition:
    hosted = topic.partition(key.partition)
    share = None if hosted is None else call.cluster.share.share(key, hosted)
    if share is None or hosted is None:
        return _nothing(key.partition)
    entry = _nothing(key.partition)
    entry.leader_epoch = hosted.leader_epoch
    if share.partition.reports_offsets:
        snapshot = share.partition.snapshot()
        entry.start_offset = snapshot.start_offset
        entry.lag = max(hosted.log.end - snapshot.start_offset - snapshot.delivery_complete_count, 0)
    return entry


def _nothing(index: int) -> _Partition:
    return _Partition(partition_index=index, start_offset=NOT_KNOWN, lag=NOT_KNOWN)
