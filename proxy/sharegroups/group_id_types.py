"""Is a group id taken upstream by a group of another type, or natively by a share group? (sharegroups/README.md rule 3)

Asked once, at the first join of a group that is new here, on the joining client's connection; best effort: where this
broker is not the coordinator, or the client may not describe the group, the id counts as free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from proxy.brokers.interfaces import Connection
from proxy.loop.promise import Promise
from proxy.sharegroups.services import ShareServices
from proxy.wire import messages, registry
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode

DESCRIBE_GROUPS_VERSION = 5
"""v5 tells the state of a classic group and "Dead" of everything else; v6 answers 69 for that."""


DEAD = "Dead"

_Described: TypeAlias = (
    "messages.ConsumerGroupDescribeResponse | messages.ShareGroupDescribeResponse"
    " | messages.StreamsGroupDescribeResponse"
)

_TYPES: Mapping[int, str] = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: "a consumer group",
    ApiKey.SHARE_GROUP_DESCRIBE: "a share group of the cluster itself",
    ApiKey.STREAMS_GROUP_DESCRIBE: "a streams group",
}


async def taken_by(connection: Connection, services: ShareServices, group_id: str) -> str | None:
    """Words for what holds the id upstream, or None when nothing is known to."""
    offered = services.versions.upstream
    typed = {key: _ask(connection, key, offered[key], group_id) for key in _TYPES if key in offered}
    message = messages.DescribeGroupsRequest
    body = registry.request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION).encode(message(groups=[group_id]))
    classic = await connection.ask(ApiKey.DESCRIBE_GROUPS, DESCRIBE_GROUPS_VERSION, body)
    found: str | None = None
    for group in registry.codec_of(messages.DescribeGroupsResponse, DESCRIBE_GROUPS_VERSION).decode(classic).groups:
        if group.error_code == ErrorCode.NONE and group.group_state != DEAD:
            found = "a classic group"
    for key, (version, answer) in typed.items():
        described: _Described = registry.response(key, version).decode(await answer)
        if any(group.error_code == ErrorCode.NONE for group in described.groups):
            found = _TYPES[key]
    return found


def _ask(connection: Connection, key: int, offered: tuple[int, int], group_id: str) -> tuple[int, Promise[memoryview]]:
    version = min(offered[1], registry.versions(key)[1])
    message: Any = registry.message(f"{registry.API_KEYS[key]}Request")
    return version, connection.ask(key, version, registry.request(key, version).encode(message(group_ids=[group_id])))
