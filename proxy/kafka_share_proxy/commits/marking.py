"""Storing the group record before the first text of a group is forwarded (commits/README.md rule 2).

Only for clients that may READ the group: others could fill the topic with invented groups.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.brokers.rights import on_read_group, request_read_group
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.requested_commits import CommitRequest, RequestedCommit
from kafka_share_proxy.commits.services import FEATURE, CommitServices
from kafka_share_proxy.commits.storing import outcome_of_appends, store_marker
from kafka_share_proxy.fleet.group_owners import Fleet, PeerLost
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import settled_by, wait_until
from kafka_share_proxy.wire.errors import ErrorCode

SEEN_MAX_S = 2.0
"""Seconds that the first text of a group waits for the other proxies to read its group record."""
QUERY_AGAIN_S = 0.02


async def store_marker_first(
    call: Call[CommitRequest], services: CommitServices, commits: Iterable[RequestedCommit]
) -> None:
    """Mark the group before its first text. On failure, refuse the individual commits. Raises UpstreamLost."""
    individual = [requested for requested in commits if requested.text is not None and requested.code is None]
    group = services.held.group(call.message.group_id)
    if not individual or (group.is_marker_stored and group.is_marker_seen):
        return
    code = ErrorCode.NONE if group.is_marker_stored else await _marker_code(call, services, group)
    reason = "that the group commits individually could not be stored"
    if code == ErrorCode.NONE and (unconfirmed := await _unconfirmed_proxies(services, group)):
        code, reason = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"other proxies have not read the group record: {unconfirmed}",
        )
    for requested in individual if code != ErrorCode.NONE else ():
        requested.refuse(code, reason)


async def _marker_code(call: Call[CommitRequest], services: CommitServices, group: CommittingGroup) -> ErrorCode:
    connection = call.connection
    response = await request_read_group(connection, group.group_id)
    refusal = on_read_group(connection, group.group_id, response, services.timers.now())
    if refusal != ErrorCode.NONE:
        return refusal
    group = services.held.group(group.group_id)  # it may have been removed meanwhile
    if not group.has_marker:
        store_marker(services, group)
    return await outcome_of_appends(services, group)


async def _unconfirmed_proxies(services: CommitServices, group: CommittingGroup) -> str:
    """Return the names of proxies that have not read the group record within SEEN_MAX_S."""
    fleet = services.fleet
    confirmed: set[str] = set()
    deadline = services.timers.now() + SEEN_MAX_S
    while fleet is not None and fleet.members.keys() - confirmed:
        confirmed |= await _confirming_proxies(services, fleet, group.group_id, confirmed, deadline)
        unconfirmed = fleet.members.keys() - confirmed
        if unconfirmed and services.timers.now() >= deadline:
            return ", ".join(sorted(unconfirmed))
        if unconfirmed:
            await wait_until(services.timers, min(services.timers.now() + QUERY_AGAIN_S, deadline))
    group.is_marker_seen = True
    return ""


async def _confirming_proxies(
    services: CommitServices, fleet: Fleet, group_id: str, confirmed: set[str], deadline: float
) -> set[str]:
    unconfirmed = {
        address: peer for address, peer in fleet.members.items() if peer is not None and address not in confirmed
    }
    queries = {address: peer.knows(FEATURE, group_id) for address, peer in unconfirmed.items()}
    return {
        address
        for address, response in queries.items()
        if await settled_by(services.timers, deadline, response) and _is_confirmed(response)
    }


def _is_confirmed(response: Promise[bool]) -> bool:
    try:
        return response.result()
    except PeerLost:
        return False
