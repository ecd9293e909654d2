"""DescribeGroups (key 15): a share group held here is no classic group.

Versions: all; only requests that name a group held here come to the handler.

Behaviour (measured on Kafka 4.3.0 with a native share group)
- v0-5: error 0, state Dead, nothing else but the authorized operations. From v6 on: 69 "is not a classic group".
- The broker is asked with the same request: it judges the rights, answers for all other groups and gives the authorized
  operations, which it does for ids it does not know. What it refuses (30) or cannot say (14, 15, 16) is passed on.
"""

from __future__ import annotations

from proxy.forwarding.ask_and_reply import ask_upstream, replied
from proxy.forwarding.declared_api import DeclaredApi
from proxy.forwarding.interfaces import Call
from proxy.sharegroups.apis.foreign_groups import NOT_A_MEMBER
from proxy.sharegroups.apis.held_groups import any_is_held, names_held
from proxy.sharegroups.model.group import DEAD
from proxy.sharegroups.services import ShareServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

KEY = ApiKey.DESCRIBE_GROUPS
NOT_FOUND_VERSION = 6
"""From here on a group that is not there is an error (KIP-1043); before, it is described as Dead."""

NO_OPERATIONS = -2147483648


async def handle(call: Call[messages.DescribeGroupsRequest], services: ShareServices) -> bytes:
    """Let the broker answer, and correct what it says of groups held here."""
    answer = await ask_upstream(call, call.message)
    for group in answer.groups:
        if services.holds(group.group_id) and group.error_code in NOT_A_MEMBER:
            _make_dead(group, call.version)
        await call.work.step()
    return await replied(call, answer)


def _named(request: messages.DescribeGroupsRequest) -> list[str]:
    return request.groups


def _make_dead(group: messages.DescribeGroupsResponse.DescribedGroup, version: int) -> None:
    group.group_state, group.protocol_type, group.protocol_data, group.members = DEAD, "", "", []
    if version >= NOT_FOUND_VERSION:
        group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = f"Group {group.group_id} is not a classic group."
        group.authorized_operations = NO_OPERATIONS
    else:
        group.error_code = ErrorCode.NONE


API = DeclaredApi(
    key=KEY,
    handle=handle,
    wants=any_is_held(or_loading=False),
    picks=names_held(_named, or_loading=False),
)
