"""Look-up of group ids that another type, or a native share group, uses upstream (sharegroups/README.md rule 3).

It happens once, at the first join of a group that is new here, on the joining client's connection. It is best effort:
if this broker is not the coordinator, or the client may not describe the group, the id counts as free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

DESCRIBE_GROUPS_VERSION = 5
"""v5 returns the state of a classic group, and "Dead" for anything else. v6 returns error 69 instead."""


DEAD = "Dead"
NATIVE = "a share group of the cluster itself"

_Described: TypeAlias = (
    "messages.ConsumerGroupDescribeResponse | messages.ShareGroupDescribeResponse"
    " | messages.StreamsGroupDescribeResponse"
)

_TYPES: Mapping[int, str] = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: "a consumer group",
    ApiKey.SHARE_GROUP_DESCRIBE: NATIVE,
    ApiKey.STREAMS_GROUP_DESCRIBE: "a streams group",
}


async def taken_by(connection: Connection, services: ShareServices, group_id: str) -> str | None:
    """Return words for the group that uses the id upstream. None if no such group is known."""
    offered = services.versions.upstream
    typed = {key: _query(connection, key, offered[key], group_id) for key in _TYPES if key in offered}
    message = messages.DescribeGroupsRequest
    body = registry.request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION).encode(message(groups=[group_id]))
    classic = await connection.send_request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, body)
    kind: str | None = None
    for group in registry.codec_of(messages.DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION).decode(classic).groups:
        if group.error_code == ErrorCode.NONE and group.group_state != DEAD:
            kind = "a classic group"
    for key, (version, response) in typed.items():
        described: _Described = registry.response(key, version).decode(await response)
        if any(group.error_code == ErrorCode.NONE for group in described.groups):
            kind = _TYPES[key]
    return kind


def _query(
    connection: Connection, key: int, offered: tuple[int, int], group_id: str
) -> tuple[int, Promise[memoryview]]:
    version = min(offered[1], registry.versions(key)[1])
    message: Any = registry.message(f"{registry.API_KEYS[key]}Request")
    return version, connection.send_request(
        key, version, registry.request(key, version).encode(message(group_ids=[group_id]))
    )
