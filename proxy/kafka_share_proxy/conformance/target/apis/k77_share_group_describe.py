"""ShareGroupDescribe (KIP-932)."""

from __future__ import annotations

from functools import partial

from kafka_share_proxy.conformance.target.authorized_operations import GROUP_OPERATIONS
from kafka_share_proxy.conformance.target.cluster import TargetCluster
from kafka_share_proxy.conformance.target.group_access import group_error
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.sharegroups.model.group_descriptions import described_group
from kafka_share_proxy.wire.acl_operations import NO_BITS
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
    operations = GROUP_OPERATIONS if call.request.include_authorized_operations else NO_BITS
    return described_group(group.describe(), operations, partial(_topic_name, call.cluster))


def _topic_name(cluster: TargetCluster, topic_id: bytes) -> str:
    topic = cluster.topics.with_id(topic_id)
    return "" if topic is None else topic.name
