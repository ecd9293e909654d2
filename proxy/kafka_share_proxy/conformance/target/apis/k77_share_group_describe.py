"""ShareGroupDescribe (KIP-932)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.authorized_operations import GROUP_OPERATIONS, UNKNOWN_OPERATIONS
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.sharegroups.model.group import MemberDescription
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

_Request = messages.ShareGroupDescribeRequest
_Response = messages.ShareGroupDescribeResponse


async def handle(call: TargetCall[_Request]) -> _Response:
    """Describe groups."""
    return _Response(groups=[_described(call, group_id) for group_id in dict.fromkeys(call.request.group_ids)])


def _described(call: TargetCall[_Request], group_id: str) -> _Response.DescribedGroup:
    error = group_error(call.cluster, call.peer.node_id, group_id)
    if error != ErrorCode.NONE:
        return _Response.DescribedGroup(group_id=group_id, error_code=error)
    group = call.cluster.share.coordinator.group(group_id)
    if group is None:
        text = f"Group {group_id} not found."
        return _Response.DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
    described = group.describe()
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else UNKNOWN_OPERATIONS
    return _Response.DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        group_epoch=described.epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=[_member(call.cluster, member) for member in described.members],
        authorized_operations=operations,
    )


def _member(cluster: TargetCluster, member: MemberDescription) -> _Response.Member:
    topics = []
    for topic_id, partitions in sorted(member.assignment.items()):
        topic = cluster.topics.with_id(topic_id)
        name = "" if topic is None else topic.name
        topics.append(_Response.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(partitions)))
    return _Response.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=_Response.Assignment(topic_partitions=topics),
    )
