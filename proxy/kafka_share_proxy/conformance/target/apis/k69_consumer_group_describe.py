"""ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.conformance.target.authorized_operations import GROUP_OPERATIONS
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.consumer_group import ConsumerGroup
from kafka_share_proxy.conformance.target.consumer_members import ConsumerMember
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.acl_operations import NO_BITS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Types of a member: the protocol that it uses."""

_Response = messages.ConsumerGroupDescribeResponse


async def handle(call: TargetCall[messages.ConsumerGroupDescribeRequest]) -> _Response:
    """Describe groups."""
    return _Response(groups=[_described(call, group_id) for group_id in call.request.group_ids])


def _described(call: TargetCall[messages.ConsumerGroupDescribeRequest], group_id: str) -> _Response.DescribedGroup:
    error = group_error(call.cluster, call.peer.node_id, group_id)
    if error != ErrorCode.NONE:
        return _Response.DescribedGroup(group_id=group_id, error_code=error)
    group = call.cluster.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        kind = "not found" if group is None else "is not a consumer group"
        text = f"Group {group_id} {kind}."
        return _Response.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else NO_BITS
    return _Response.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(call.cluster, group, member) for member in group.members.values()],
        authorized_operations=operations,
    )


def _member(cluster: TargetCluster, group: ConsumerGroup, member: ConsumerMember) -> _Response.Member:
    return _Response.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(cluster, member.assigned.keys() | member.revoking.keys()),
        target_assignment=_assignment(cluster, group.target.get(member.member_id, ())),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(cluster: TargetCluster, partitions: Iterable[TopicIdPartition]) -> _Response.Assignment:
    topics: dict[bytes, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic_id, []).append(partition.partition)
    topics_by_id = {topic_id: cluster.topics.with_id(topic_id) for topic_id in topics}
    entry = _Response.TopicPartitions
    return _Response.Assignment(
        topic_partitions=[
            entry(topic_id=topic_id, topic_name=topic.name, partitions=topics[topic_id])
            for topic_id, topic in topics_by_id.items()
            if topic is not None
        ]
    )
