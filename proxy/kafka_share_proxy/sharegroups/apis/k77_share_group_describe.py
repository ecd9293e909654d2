"""ShareGroupDescribe v1 (KIP-932), served here.

- Per group: empty id 24, DESCRIBE denied 30, not held here 69; a subscribed topic without DESCRIBE 29 and no members.
- Authorized operations on request only, from DescribeGroups v5 on this connection. If this broker is not the group's
  coordinator, its error 16 is forwarded (sharegroups/README.md rule 68).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kafka_share_proxy.brokers.rights import (
    Right,
    group_bits,
    on_describe_groups,
    request_describe_groups,
    request_group_bits,
    rights_of,
)
from kafka_share_proxy.brokers.topic_leaders import (
    describe_refusal,
    names_to_query,
    on_many_topics,
    request_many_topics,
)
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.dispatch.split_requests import Splits
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import replied
from kafka_share_proxy.sharegroups.model.group_descriptions import Described, described_group
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.acl_operations import NO_BITS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

KEY = ApiKey.SHARE_GROUP_DESCRIBE
VERSIONS = (1, 1)

NOT_TO_BE_DESCRIBED = "The group has described topic(s) that the client is not authorized to describe."


async def handle(call: Call[messages.ShareGroupDescribeRequest], services: ShareServices) -> bytes:
    request = call.message
    group_ids = list(dict.fromkeys(request.group_ids or ()))
    examined = await _examine(call, services, group_ids, request.include_authorized_operations)
    groups = []
    for group_id in group_ids:
        groups.append(_described(call, services, group_id, examined))
        await call.work.pause()
    return await replied(call, messages.ShareGroupDescribeResponse(groups=groups))


class _Examined(NamedTuple):
    refusals: Mapping[str, ErrorCode | None]
    """Error of DESCRIBE by group. NONE if allowed."""
    bits: Mapping[str, tuple[int, int]] | None
    """Error and authorized operations by group. None if they are not requested."""


async def _examine(
    call: Call[messages.ShareGroupDescribeRequest], services: ShareServices, group_ids: Sequence[str], with_bits: bool
) -> _Examined:
    """Look up unknown rights, and the authorized operations if requested, all in one round trip."""
    connection, now = call.connection, services.timers.now()
    rights, cache_s = rights_of(connection), services.options.rights_cache_s
    nonempty_ids = [group_id for group_id in group_ids if group_id]
    refusals = {i: rights.group_code(Right.DESCRIBE_GROUP, i, now, cache_s) for i in nonempty_ids}
    unknown = [i for i, code in refusals.items() if code is None]
    topics = {
        name for i in nonempty_ids if (g := services.coordinator.group(i)) is not None for name in g.subscribed_topics()
    }
    topic_names = names_to_query(connection, services, sorted(topics), Right.DESCRIBE_TOPIC)
    groups_responses = request_describe_groups(connection, unknown)
    bits_response = request_group_bits(connection, nonempty_ids) if with_bits and nonempty_ids else None
    topics_responses = request_many_topics(connection, topic_names)
    for groups_response in groups_responses:
        refusals |= on_describe_groups(connection, await groups_response, now)
        await call.work.pause()
    bits = None if bits_response is None else group_bits(await bits_response)
    await on_many_topics(connection, services, topics_responses, call.work)
    return _Examined(refusals, bits)


def _described(
    call: Call[messages.ShareGroupDescribeRequest],
    services: ShareServices,
    group_id: str,
    examined: _Examined,
) -> Described:
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)
    refusal = examined.refusals[group_id]
    if refusal != ErrorCode.NONE:
        return _refused(group_id, ErrorCode.UNKNOWN_SERVER_ERROR if refusal is None else refusal)
    group = services.coordinator.group(group_id)
    if group is None:
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    code, operations = (examined.bits or {}).get(group_id, (ErrorCode.NONE, NO_BITS))
    if code != ErrorCode.NONE:
        return _refused(group_id, ErrorCode.of(code))
    for name in group.subscribed_topics():
        code = describe_refusal(call.connection, services, name)
        if code != ErrorCode.NONE:
            return _refused(group_id, code, NOT_TO_BE_DESCRIBED)
    return described_group(group.describe(), operations, partial(_topic_name, services))


def _refused(group_id: str, code: ErrorCode, text: str | None = None) -> Described:
    return messages.ShareGroupDescribeResponse.DescribedGroup(
        error_code=code, error_message=text, group_id=group_id, group_state=""
    )


def _topic_name(services: ShareServices, topic_id: bytes) -> str:
    topic = services.topology.topic_by_id(topic_id)
    return "" if topic is None else topic.name


async def _respond_unavailable(
    call: Call[messages.ShareGroupDescribeRequest], code: ErrorCode, reason: str
) -> messages.ShareGroupDescribeResponse:
    def entry(group_id: str) -> Described:
        return _refused(group_id, code, reason or None)

    groups = await call.work.map(entry, dict.fromkeys(call.message.group_ids))
    return messages.ShareGroupDescribeResponse(groups=groups)


def _group_id(entry: Described) -> str:
    return entry.group_id


API = DeclaredApi(
    key=KEY,
    handle=handle,
    versions=VERSIONS,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    splits=Splits("group_ids", str, "groups", _group_id, str),
    groups_max=10_000,
)
