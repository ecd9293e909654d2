"""ListGroups (key 16): the broker's groups and the share groups held here. Versions: all.

- Filters by state (v4) and type (v5, KIP-1099) are compared without case. Protocol type and type are `share`, the state
  is Stable or Empty.
- A group is listed if the principal may DESCRIBE it, and all are if it may DESCRIBE the cluster.
- Clients query every broker and merge the lists. Therefore each group is listed by one broker, always the same, and by
  the bootstrap listener, whose broker id no client knows.
- If the broker cannot judge DESCRIBE on a group (neither yes nor 30), the response contains its error and no list, so
  that the client does not take a part of the list for all of it.
- The group by which proxies agree on ownership is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from zlib import crc32

from kafka_share_proxy.brokers.operations import DESCRIBE_BIT
from kafka_share_proxy.brokers.rights import (
    RIGHTS_AT_ONCE,
    Right,
    on_describe_groups,
    request_describe_groups,
    rights_of,
)
from kafka_share_proxy.fleet.group_owners import HeldGroup, Holdings
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import (
    decode_response,
    replied,
    reply,
    send_request,
    send_upstream,
)
from kafka_share_proxy.sharegroups.apis.fleet_lists import held_elsewhere
from kafka_share_proxy.sharegroups.model.group import GROUP_TYPE
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.wire.acl_operations import NO_BITS
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import UNKNOWN_NODE

KEY = ApiKey.LIST_GROUPS
OWN_GROUPS_PREFIX = "__proxy_"
OWN_PROTOCOL_TYPE = "proxy"

DESCRIBE_CLUSTER_VERSION = 0
CLUSTER = "kafka-cluster"
"""Resource name of the cluster."""


async def handle(call: Call[messages.ListGroupsRequest], services: ShareServices) -> bytes:
    response = await send_upstream(call, call.message)
    if response.error_code != ErrorCode.NONE:
        return reply(call, response)
    elsewhere = await held_elsewhere(services)
    if elsewhere is None:
        return reply(call, _not_all(response, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    candidates = await _candidates(call, services, elsewhere)
    group_ids = await call.work.map(attrgetter("group_id"), candidates)
    shown = await _may_describe(call, services, group_ids)
    if isinstance(shown, ErrorCode):
        return reply(call, _not_all(response, shown))
    of_broker = await call.work.select(lambda entry: not _is_own(entry), response.groups)
    held_here = await call.work.select(lambda group: group.group_id in shown, candidates)
    response.groups = of_broker + await call.work.map(_entry, held_here)
    return await replied(call, response)


def _entry(group: HeldGroup) -> messages.ListGroupsResponse.ListedGroup:
    return messages.ListGroupsResponse.ListedGroup(
        group_id=group.group_id, protocol_type=GROUP_TYPE, group_state=group.state, group_type=GROUP_TYPE
    )


async def _candidates(
    call: Call[messages.ListGroupsRequest], services: ShareServices, elsewhere: Iterable[Holdings]
) -> list[HeldGroup]:
    """Return the share groups that belong into the response of this listener and pass the filters, by id."""
    request, node_id = call.message, UNKNOWN_NODE if call.connection.is_bootstrap else call.connection.node_id
    states = {state.lower() for state in request.states_filter or ()}
    types = {kind.lower() for kind in request.types_filter or ()}
    if types and GROUP_TYPE not in types:
        return []
    groups: dict[str, HeldGroup] = {}
    for holdings in elsewhere:
        for held in holdings.groups:
            groups[held.group_id] = held
            await call.work.step()
    for group_id, group in list(services.coordinator.groups.items()):
        groups[group_id] = HeldGroup(group_id, group.state)
        await call.work.step()

    def is_requested(group: HeldGroup) -> bool:
        state_fits = not states or group.state.lower() in states
        return state_fits and is_listed_at(group.group_id, node_id, services.topology.brokers)

    await call.work.pause()  # sorting is one step
    return await call.work.select(is_requested, map(groups.__getitem__, sorted(groups)))


def _not_all(response: messages.ListGroupsResponse, code: ErrorCode) -> messages.ListGroupsResponse:
    """Return an error without groups, so that the client does not take an incomplete list for all of it."""
    response.error_code, response.groups = code, []
    return response


def is_listed_at(group_id: str, node_id: int, brokers: Collection[int]) -> bool:
    """Return True if the listener of this broker lists the group.

    It is the broker with the highest hash of both names: if a broker is added or removed, only its own groups move.
    """
    if node_id == UNKNOWN_NODE or not brokers:
        return True
    return node_id == max(brokers, key=lambda broker: (crc32(f"{broker}:{group_id}".encode()), broker))


def _is_own(entry: messages.ListGroupsResponse.ListedGroup) -> bool:
    return bool(entry.protocol_type == OWN_PROTOCOL_TYPE and entry.group_id.startswith(OWN_GROUPS_PREFIX))


async def _may_describe(
    call: Call[messages.ListGroupsRequest], services: ShareServices, group_ids: list[str]
) -> Collection[str] | ErrorCode:
    """Return the groups that the principal may describe, or an error if the broker could not judge it."""
    codes = await _refusals(call, services, group_ids)
    allowed, not_judged = set(), None
    for group_id in group_ids:
        code = codes[group_id]
        if code == ErrorCode.NONE:
            allowed.add(group_id)
        elif code != ErrorCode.GROUP_AUTHORIZATION_FAILED and not_judged is None:
            not_judged = code
        await call.work.step()
    if len(allowed) < len(group_ids) and await _may_describe_cluster(call, services):
        return codes
    return not_judged or allowed


async def _refusals(
    call: Call[messages.ListGroupsRequest], services: ShareServices, group_ids: Iterable[str]
) -> dict[str, ErrorCode]:
    """Return the DESCRIBE error of each group. Unknown ones are looked up in several requests, sent together."""
    rights, now, cache_s = rights_of(call.connection), services.timers.now(), services.options.rights_cache_s
    refusals, unknown = {}, []
    for group_id in group_ids:
        code = rights.group_code(Right.DESCRIBE_GROUP, group_id, now, cache_s)
        refusals[group_id] = ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code
        if code is None:
            unknown.append(group_id)
        await call.work.step()
    queries = []
    for start in range(0, len(unknown), RIGHTS_AT_ONCE):
        queries += request_describe_groups(call.connection, unknown[start : start + RIGHTS_AT_ONCE])
        await call.work.pause()
    for query in queries:
        refusals |= on_describe_groups(call.connection, await query, now)
        await call.work.pause()
    return refusals


async def _may_describe_cluster(call: Call[messages.ListGroupsRequest], services: ShareServices) -> bool:
    """Return True if the principal may DESCRIBE the cluster, according to its authorized operations."""
    rights, now = rights_of(call.connection), services.timers.now()
    verdict = rights.verdict(Right.DESCRIBE_CLUSTER, CLUSTER, now, services.options.rights_cache_s)
    if verdict is None:
        request = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await send_request(call.connection, ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER_VERSION, request)
        described = decode_response(messages.DescribeClusterResponse, DESCRIBE_CLUSTER_VERSION, response)
        operations = described.cluster_authorized_operations
        if described.error_code != ErrorCode.NONE or operations == NO_BITS:
            return False
        verdict = bool(operations & DESCRIBE_BIT)
        rights.remember(Right.DESCRIBE_CLUSTER, CLUSTER, verdict, services.timers.now())
    return verdict


async def _respond_unavailable(
    _call: Call[messages.ListGroupsRequest], code: ErrorCode, _reason: str
) -> messages.ListGroupsResponse:
    return messages.ListGroupsResponse(error_code=code, groups=[])


API = DeclaredApi(key=KEY, handle=handle, needs=Needs.ALL_LOADED, respond_unavailable=_respond_unavailable)
