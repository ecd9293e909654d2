"""ListGroups (key 16): the broker's groups and the share groups held here.

Versions: all.

Behaviour
- The broker answers for its own groups; the share groups that the filters admit follow. Filters by state (v4) and type
  (v5, KIP-1099) are compared without case; protocol type and type are `share`, the state is Stable or Empty.
- A group is listed if the principal may DESCRIBE it, and all are if it may DESCRIBE the cluster.
- Clients ask every broker and put the answers together: each group is listed at one broker, always the same while the
  brokers stay the same, and in every answer of the bootstrap listener, whose broker no client knows.
- Where the broker cannot judge DESCRIBE on a group (neither yes nor 30), the answer is its code and no list: nobody is
  to take a part of the list for all of it.
- The group by which proxies agree on who owns what is left out.
- A broker that answers with an error has its answer passed on as it is: the client asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from zlib import crc32

from proxy.brokers.rights import DESCRIBE_BIT, NO_BITS, Right, ask_describe_groups, rights_of, tell_describe_groups
from proxy.fleet.group_owners import HeldGroup
from proxy.forwarding.ask_and_reply import ask, ask_upstream, reply, told
from proxy.forwarding.declared_api import DeclaredApi, Needs
from proxy.forwarding.interfaces import Call
from proxy.sharegroups.apis.fleet_lists import held_elsewhere
from proxy.sharegroups.model.group import GROUP_TYPE
from proxy.sharegroups.services import ShareServices
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.LIST_GROUPS
OWN_GROUPS_PREFIX = "__proxy_"
OWN_PROTOCOL_TYPE = "proxy"

DESCRIBE_CLUSTER_VERSION = 0
CLUSTER = "kafka-cluster"
"""The one name of the cluster as a resource."""


async def handle(call: Call[messages.ListGroupsRequest], services: ShareServices) -> bytes:
    """Merge the broker's list with the groups held here."""
    answer = await ask_upstream(call, call.message)
    if answer.error_code != ErrorCode.NONE:
        return reply(call, answer)
    elsewhere = await held_elsewhere(services)
    if elsewhere is None:
        return reply(call, _not_all(answer, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    found = candidates(call, services, [group for holdings in elsewhere for group in holdings.groups])
    shown = await _may_describe(call, services, [group.group_id for group in found])
    if isinstance(shown, ErrorCode):
        return reply(call, _not_all(answer, shown))
    listed = messages.ListGroupsResponse.ListedGroup
    answer.groups = [
        *(entry for entry in answer.groups if not _is_own(entry)),
        *(
            listed(group_id=group.group_id, protocol_type=GROUP_TYPE, group_state=group.state, group_type=GROUP_TYPE)
            for group in found
            if group.group_id in shown
        ),
    ]
    return reply(call, answer)


def candidates(
    call: Call[messages.ListGroupsRequest], services: ShareServices, elsewhere: Sequence[HeldGroup]
) -> list[HeldGroup]:
    """The share groups that belong into the answer of this listener and pass the filters, by id."""
    request, node_id = call.message, UNKNOWN_NODE if call.connection.is_bootstrap else call.connection.node_id
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    if types and GROUP_TYPE not in types:
        return []
    groups = {group.group_id: group for group in elsewhere}
    groups |= {i: HeldGroup(i, group.state) for i, group in services.coordinator.groups.items()}
    return [
        group
        for group_id, group in sorted(groups.items())
        if (not states or group.state.lower() in states) and is_listed_at(group_id, node_id, services.topology.brokers)
    ]


def _not_all(answer: messages.ListGroupsResponse, code: ErrorCode) -> messages.ListGroupsResponse:
    """Another proxy, or the broker about rights, cannot be asked: nobody is to take half a list for all of it."""
    answer.error_code, answer.groups = code, []
    return answer


def is_listed_at(group_id: str, node_id: int, brokers: Collection[int]) -> bool:
    """Whether the listener of this broker lists the group: one of the known brokers does, and the bootstrap listener.

    The broker with the highest hash of both names: when a broker comes or goes, only its own groups change place.
    """
    if node_id == UNKNOWN_NODE or not brokers:
        return True
    return node_id == max(brokers, key=lambda broker: (crc32(f"{broker}:{group_id}".encode()), broker))


def _is_own(entry: messages.ListGroupsResponse.ListedGroup) -> bool:
    return bool(entry.protocol_type == OWN_PROTOCOL_TYPE and entry.group_id.startswith(OWN_GROUPS_PREFIX))


async def _may_describe(
    call: Call[messages.ListGroupsRequest], services: ShareServices, group_ids: list[str]
) -> Collection[str] | ErrorCode:
    """Those of the groups that the principal may describe; a code, where the broker could not judge it."""
    codes = await _refusals(call, services, group_ids)
    allowed = {group_id for group_id in group_ids if codes[group_id] == ErrorCode.NONE}
    if len(allowed) < len(group_ids) and await _may_describe_cluster(call, services):
        return group_ids
    not_judged = (code for code in codes.values() if code not in (ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return next(not_judged, None) or allowed


async def _refusals(
    call: Call[messages.ListGroupsRequest], services: ShareServices, group_ids: Iterable[str]
) -> dict[str, ErrorCode]:
    """Ask about those groups nothing is remembered of, in as many requests as it takes, sent together."""
    rights, now, cache_s = rights_of(call.connection), services.timers.now(), services.options.rights_cache_s
    remembered = {group_id: rights.group_code(Right.DESCRIBE_GROUP, group_id, now, cache_s) for group_id in group_ids}
    unknown = [group_id for group_id, code in remembered.items() if code is None]
    found = {i: ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code for i, code in remembered.items()}
    for question in ask_describe_groups(call.connection, unknown):
        found |= tell_describe_groups(call.connection, await question, now)
        await call.work.pause()
    return found


async def _may_describe_cluster(call: Call[messages.ListGroupsRequest], services: ShareServices) -> bool:
    """DESCRIBE on the cluster, as the authorized operations on it tell."""
    rights, now = rights_of(call.connection), services.timers.now()
    verdict = rights.verdict(Right.DESCRIBE_CLUSTER, CLUSTER, now, services.options.rights_cache_s)
    if verdict is None:
        request = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await ask(call.connection, ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION, request)
        described = told(messages.DescribeClusterResponse, DESCRIBE_CLUSTER_VERSION, answer)
        operations = described.cluster_authorized_operations
        if described.error_code != ErrorCode.NONE or operations == NO_BITS:
            return False
        verdict = bool(operations & DESCRIBE_BIT)
        rights.remember(Right.DESCRIBE_CLUSTER, CLUSTER, verdict, services.timers.now())
    return verdict


async def _away(_call: Call[messages.ListGroupsRequest], code: ErrorCode, _reason: str) -> messages.ListGroupsResponse:
    return messages.ListGroupsResponse(error_code=code, groups=[])


API = DeclaredApi(key=KEY, handle=handle, needs=Needs.ALL_LOADED, away=_away)
