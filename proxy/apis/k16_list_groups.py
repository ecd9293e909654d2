"""ListGroups (key 16): the broker's groups and the share groups held here.

Versions: all.

Behaviour
- The broker answers for its own groups; the share groups that the filters admit follow. Filters by state (v4) and type
  (v5, KIP-1099) are compared without case; protocol type and type are `share`, the state is Stable or Empty.
- A group is listed if the principal may DESCRIBE it.
- Clients ask every broker and put the answers together: each group is listed at one broker, always the same while the
  brokers stay the same, and in every answer of the bootstrap listener, whose broker no client knows.
- The group by which proxies agree on who owns what is left out.
- A broker that answers with an error has its answer passed on as it is: the client asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from zlib import crc32

from proxy.apis.exchange import ask_upstream, reply
from proxy.apis.ports import Call
from proxy.apis.rights import Right, ask_describe_groups, rights_of, tell_describe_groups
from proxy.apis.services import Services
from proxy.errors import ErrorCode
from proxy.share.group import GROUP_TYPE, ShareGroup
from proxy.values import UNKNOWN_NODE
from proxy.wire import registry

KEY = 16
OWN_GROUPS_PREFIX = "__proxy_"
OWN_PROTOCOL_TYPE = "proxy"

RIGHTS_AT_ONCE = 500
"""Groups whose DESCRIBE right is asked about in one request."""


async def handle(call: Call, services: Services) -> bytes:
    """Merge the broker's list with the groups held here."""
    answer = await ask_upstream(call, call.message)
    if answer.error_code != ErrorCode.NONE:
        return reply(call, answer)
    found = candidates(call.message, call.connection.node_id, services)
    await _ask_rights(call, services, [group.group_id for group in found])
    listed = registry.message("ListGroupsResponse").ListedGroup
    answer.groups = [
        *(entry for entry in answer.groups if not _is_own(entry)),
        *(
            listed(group_id=group.group_id, protocol_type=GROUP_TYPE, group_state=group.state, group_type=GROUP_TYPE)
            for group in found
            if _may_describe(call, services, group.group_id)
        ),
    ]
    return reply(call, answer)


def candidates(request: Any, node_id: int, services: Services) -> list[ShareGroup]:
    """The groups held here that belong into the answer of this listener and pass the filters, by id."""
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    if types and GROUP_TYPE not in types:
        return []
    return [
        group
        for group_id, group in sorted(services.coordinator.groups.items())
        if (not states or group.state.lower() in states) and is_listed_at(group_id, node_id, services.topology.brokers)
    ]


def is_listed_at(group_id: str, node_id: int, brokers: Collection[int]) -> bool:
    """Whether the listener of this broker lists the group: one of the known brokers does, and the bootstrap listener.

    The broker with the highest hash of both names: when a broker comes or goes, only its own groups change place.
    """
    if node_id == UNKNOWN_NODE or not brokers:
        return True
    return node_id == max(brokers, key=lambda broker: (crc32(f"{broker}:{group_id}".encode()), broker))


def _is_own(entry: Any) -> bool:
    return bool(entry.protocol_type == OWN_PROTOCOL_TYPE and entry.group_id.startswith(OWN_GROUPS_PREFIX))


async def _ask_rights(call: Call, services: Services, group_ids: Iterable[str]) -> None:
    """Ask about those groups nothing is remembered of, in as many requests as it takes, sent together."""
    unknown = [group_id for group_id in group_ids if _verdict(call, services, group_id) is None]
    now = services.timers.now()
    asked = [
        ask_describe_groups(call.connection, unknown[start : start + RIGHTS_AT_ONCE])
        for start in range(0, len(unknown), RIGHTS_AT_ONCE)
    ]
    for question in asked:
        tell_describe_groups(call.connection, await question, now)


def _may_describe(call: Call, services: Services, group_id: str) -> bool:
    return _verdict(call, services, group_id) is True


def _verdict(call: Call, services: Services, group_id: str) -> bool | None:
    cache_s = services.options.rights_cache_s
    return rights_of(call.connection).verdict(Right.DESCRIBE_GROUP, group_id, services.timers.now(), cache_s)
