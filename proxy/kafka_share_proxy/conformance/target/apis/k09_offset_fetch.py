"""OffsetFetch: committed offsets, those of several groups from version 8 on (KIP-709, KIP-447, KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.target.committed_offsets import GroupOffsets
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.individual_commits import CommittedOffset
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.conformance.target.offset_commits import stale_error
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID, TopicPartition

ALL_TOPICS_SINCE, GROUPS_SINCE, TOPIC_IDS_SINCE = 2, 8, 10
NOTHING = CommittedOffset(-1)

_Request = messages.OffsetFetchRequest
_Group = messages.OffsetFetchResponse.OffsetFetchResponseGroup
_Topic = messages.OffsetFetchResponse.OffsetFetchResponseTopics
_Partition = messages.OffsetFetchResponse.OffsetFetchResponsePartitions


async def handle(call: TargetCall[_Request]) -> messages.OffsetFetchResponse:
    """Return committed offsets."""
    if call.version >= GROUPS_SINCE:
        return messages.OffsetFetchResponse(groups=[_group(call, each) for each in call.request.groups])
    requested = call.request.topics
    topics = None
    if requested is not None:
        entry = _Request.OffsetFetchRequestTopics
        topics = [entry(name=each.name, partition_indexes=each.partition_indexes) for each in requested]
    group = _group(call, _Request.OffsetFetchRequestGroup(group_id=call.request.group_id, topics=topics))
    return _single(call, group, topics)


def _single(
    call: TargetCall[_Request], group: _Group, topics: list[_Request.OffsetFetchRequestTopics] | None
) -> messages.OffsetFetchResponse:
    """Return the response for one group. Version 1 has the error in each partition."""
    message = messages.OffsetFetchResponse
    if group.error_code and call.version < ALL_TOPICS_SINCE:
        group.topics = [
            _Topic(name=t.name, partitions=[_entry(index, NOTHING, group.error_code) for index in t.partition_indexes])
            for t in topics or ()
        ]
    return message(
        error_code=group.error_code,
        topics=[
            message.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    message.OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _group(call: TargetCall[_Request], requested: _Request.OffsetFetchRequestGroup) -> _Group:
    group_id = requested.group_id
    error = coordinator = group_error(call.cluster, call.peer.node_id, group_id)
    if coordinator == ErrorCode.NONE:
        error = _member_error(call, requested)
    if error != ErrorCode.NONE:
        return _Group(group_id=group_id, error_code=error)
    offsets = call.cluster.groups.offsets_or_none(group_id) or GroupOffsets()
    topics = _all(call, offsets) if requested.topics is None else _of_topics(call, offsets, requested.topics)
    return _Group(group_id=group_id, topics=list(topics))


def _member_error(call: TargetCall[_Request], requested: _Request.OffsetFetchRequestGroup) -> ErrorCode:
    group = call.cluster.groups.get(requested.group_id)
    if not isinstance(group, ConsumerGroup) or (requested.member_id is None and requested.member_epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(requested.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if requested.member_epoch == member.epoch else stale_error(member)


def _all(call: TargetCall[_Request], offsets: GroupOffsets) -> Iterator[_Topic]:
    for name in dict.fromkeys(partition.topic for partition in offsets.committed):
        indexes = sorted(each.partition for each in offsets.committed if each.topic == name)
        yield from _with_id(call, name, [_committed(call, offsets, TopicPartition(name, index)) for index in indexes])


def _with_id(call: TargetCall[_Request], name: str, partitions: list[_Partition]) -> Iterator[_Topic]:
    topic = call.cluster.topics.with_name(name)
    if topic is not None or call.version < TOPIC_IDS_SINCE:
        yield _Topic(name=name, topic_id=ZERO_UUID if topic is None else topic.topic_id, partitions=partitions)


def _of_topics(
    call: TargetCall[_Request], offsets: GroupOffsets, requested: list[_Request.OffsetFetchRequestTopics]
) -> Iterator[_Topic]:
    for entry in requested:
        name = entry.name
        if call.version >= TOPIC_IDS_SINCE:
            topic = call.cluster.topics.with_id(entry.topic_id)
            if topic is None:
                unknown = [_entry(index, NOTHING, ErrorCode.UNKNOWN_TOPIC_ID) for index in entry.partition_indexes]
                yield _Topic(topic_id=entry.topic_id, partitions=unknown)
                continue
            name = topic.name
        partitions = [_committed(call, offsets, TopicPartition(name, index)) for index in entry.partition_indexes]
        yield _Topic(name=name, topic_id=entry.topic_id, partitions=partitions)


def _committed(call: TargetCall[_Request], offsets: GroupOffsets, partition: TopicPartition) -> _Partition:
    if call.request.require_stable and offsets.is_pending(partition):
        return _entry(partition.partition, NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _entry(partition.partition, offsets.shown(partition) or NOTHING, ErrorCode.NONE)


def _entry(index: int, committed: CommittedOffset, error: int) -> _Partition:
    return _Partition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=error,
    )
