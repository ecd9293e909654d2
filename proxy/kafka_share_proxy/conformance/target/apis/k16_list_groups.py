"""ListGroups, with filters by state and type (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind
from kafka_share_proxy.conformance.target.interfaces import TargetCall
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

CONSUMER, SHARE, CLASSIC = "consumer", "share", "classic"

_Request = messages.ListGroupsRequest
_Group = messages.ListGroupsResponse.ListedGroup


async def handle(call: TargetCall[_Request]) -> messages.ListGroupsResponse:
    """List the groups that this node coordinates."""
    coordinators = call.cluster.coordinators
    states = {each.lower() for each in call.request.states_filter}
    types = {each.lower() for each in call.request.types_filter}
    listed = [
        group
        for group in _groups(call)
        if coordinators.node_of(CoordinatorKind.GROUP, group.group_id) == call.peer.node_id
        and (not states or group.group_state.lower() in states)
        and (not types or group.group_type.lower() in types)
    ]
    return messages.ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed)


def _groups(call: TargetCall[_Request]) -> Iterator[_Group]:
    for group in call.cluster.groups.all():
        if isinstance(group, ClassicGroup):
            yield _entry(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
        else:
            yield _entry(group.group_id, CONSUMER, group.state, CONSUMER)
    for share_group in call.cluster.share.coordinator.groups.values():
        yield _entry(share_group.group_id, SHARE, share_group.state, SHARE)


def _entry(group_id: str, protocol_type: str, state: str, group_type: str) -> _Group:
    return _Group(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=group_type)
