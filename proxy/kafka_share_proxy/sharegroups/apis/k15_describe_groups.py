"""DescribeGroups (key 15): a share group held here is no classic group.

Versions: all. The handler receives only requests that name a group held here (measured on Kafka 4.3.0 with a native
share group):

- v0-5: error 0, state Dead, nothing else but the authorized operations. From v6 on: 69 "is not a classic group".
- The same request is sent to the broker. It checks the rights, describes all other groups, and returns the authorized
  operations, which it does for unknown ids as well. Its refusals (30) and coordinator errors (14, 15, 16) are
  forwarded.
"""

from __future__ import annotations

from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied, send_upstream
from kafka_share_proxy.sharegroups.apis.foreign_groups import NOT_A_MEMBER
from kafka_share_proxy.sharegroups.apis.held_groups import any_is_held, names_held
from kafka_share_proxy.sharegroups.model.group import DEAD
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.acl_operations import NO_BITS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.DESCRIBE_GROUPS
NOT_FOUND_VERSION = 6
"""Version from which an unknown group is an error (KIP-1043). Earlier versions describe it as Dead."""


async def handle(call: Call[messages.DescribeGroupsRequest], services: ShareServices) -> bytes:
    response = await send_upstream(call, call.message)
    for group in response.groups:
        if services.holds(group.group_id) and group.error_code in NOT_A_MEMBER:
            _make_dead(group, call.version)
        await call.work.step()
    return await replied(call, response)


def _groups_in_request(request: messages.DescribeGroupsRequest) -> list[str]:
    return request.groups


def _make_dead(group: messages.DescribeGroupsResponse.DescribedGroup, version: int) -> None:
    group.group_state, group.protocol_type, group.protocol_data, group.members = DEAD, "", "", []
    if version >= NOT_FOUND_VERSION:
        group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = f"Group {group.group_id} is not a classic group."
        group.authorized_operations = NO_BITS
    else:
        group.error_code = ErrorCode.NONE


API = DeclaredApi(
    key=KEY,
    handle=handle,
    wants=any_is_held(or_loading=False),
    picks=names_held(_groups_in_request, or_loading=False),
)
