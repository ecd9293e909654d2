"""Share groups on the admin listener.

GET /groups, GET /groups/ID, POST /groups/ID/members/MEMBER/release (GET: what it would do),
POST /groups/ID/hand-over/SECONDS[/force], POST /groups/ID/take-back/SECONDS[/force], GET /groups/ID/hand-over and
.../take-back.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import trio

from kafka_share_proxy.feature.admin import AdminRequest, Page, preview, refused
from kafka_share_proxy.fleet.group_owners import CommandResult, PeerLost
from kafka_share_proxy.loop.trio_waiting import until_settled
from kafka_share_proxy.sharegroups import followed_everywhere, group_report
from kafka_share_proxy.sharegroups.moves_here import Moves
from kafka_share_proxy.sharegroups.native_group import MoveRefused
from kafka_share_proxy.sharegroups.services import ShareServices

PATH = "groups"
COMMAND_WAIT_S = 8.0
"""Seconds that a response waits for the owner of a group."""
RELEASE_WAIT_S = 8.0
"""Seconds that a response waits until a release is durable. The release becomes durable in any case."""


async def of_brokers(_: AdminRequest) -> Page:
    """Return the response where the brokers serve share groups."""
    return refused(HTTPStatus.NOT_FOUND, "share groups are served by the brokers, not here")


async def response(services: ShareServices, request: AdminRequest, *, moves: Moves | None = None) -> Page | None:
    match request.parts:
        case [] | [""]:
            listed = await _in_steps(group_report.groups(services))
            return _read(request, listed | _elsewhere(services) | _completeness(services))
        case [group_id]:
            group = group_report.group(services, group_id)
            return _no_group(services, group_id) if group is None else _read(request, group)
        case [group_id, "members", member_id, "release"]:
            if request.method != "POST":
                return _release_preview(services, group_id, member_id)
            if request.forbidden:
                return refused(HTTPStatus.FORBIDDEN, request.forbidden)
            return await _release(services, group_id, member_id)
        case [group_id, "hand-over" | "take-back" as action, *rest] if moves is not None:
            return await _move_anywhere(services, moves, request, [group_id, action, *rest])
    return None


async def _in_steps(steps: Generator[None, None, group_report.View]) -> group_report.View:
    """Run the steps to their result. Clients are served between steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            view: group_report.View = end.value
            return view
        await trio.lowlevel.checkpoint()


def _no_member(services: ShareServices, group_id: str, member_id: str) -> Page | None:
    """Return the refusal if this proxy does not hold the group, or the group has no such member."""
    if services.coordinator.group(group_id) is None:
        return _no_group(services, group_id)
    if group_report.knows_member(services, group_id, member_id):
        return None
    ids = f"share group {json.dumps(group_id)} has no member {json.dumps(member_id)}"
    return refused(HTTPStatus.NOT_FOUND, f"{ids}, and no member of that id holds records of it")


def _release_preview(services: ShareServices, group_id: str, member_id: str) -> Page:
    refusal = _no_member(services, group_id, member_id)
    if refusal is not None:
        return refusal
    records = group_report.held_records(services, group_id, member_id)
    return preview(
        f"Release all {records} records that member {member_id} of share group {group_id} holds?",
        "They are delivered again, to any member. Work on them that is in progress may be done twice, and later "
        "acknowledgements of them by this member are refused.",
        f"Release {records} records",
        group=group_id,
        member=member_id,
        records=records,
    )


async def _release(services: ShareServices, group_id: str, member_id: str) -> Page:
    refusal = _no_member(services, group_id, member_id)
    if refusal is not None:
        return refusal
    released = group_report.release(services, group_id, member_id)
    if released is None:
        return _no_group(services, group_id)
    records, written = released
    with trio.move_on_after(RELEASE_WAIT_S):
        await until_settled(written)
    body = {"group": group_id, "member": member_id, "released_records": records}
    if not written.done:
        return HTTPStatus.ACCEPTED, body | {"durable": False, "reasons": ["the journal has not confirmed it yet"]}
    reasons = group_report.refused(written.result())
    if reasons:
        return HTTPStatus.BAD_GATEWAY, body | {"released_records": 0, "durable": False, "reasons": reasons}
    return HTTPStatus.OK, body | {"durable": True}


async def _move_anywhere(
    services: ShareServices, moves: Moves, request: AdminRequest, words: Sequence[str]
) -> Page | None:
    """Begin or show a move of a group here or, in a fleet, at its owner."""
    if request.method == "POST" and len(words) > len(("group", "action")) and request.forbidden:
        return refused(HTTPStatus.FORBIDDEN, request.forbidden)
    group_id = words[0]
    is_here = services.gate.lets_in((services.gate.partition_of(group_id),)) or moves.latest(group_id) is not None
    if services.fleet is None or is_here:
        return _move(services, moves, request.method, words)
    owner = services.fleet.owner(services.gate.partition_of(group_id))
    if owner is None:
        return _no_group(services, group_id)
    result = owner.command(services.feature, [request.method, *words])
    try:
        with trio.move_on_after(COMMAND_WAIT_S):
            await until_settled(result)
            status, body = result.result()
            return HTTPStatus(status), body
    except PeerLost as error:
        return refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return refused(HTTPStatus.SERVICE_UNAVAILABLE, "the proxy that owns the group does not respond; try again")


def command(services: ShareServices, moves: Moves, words: Sequence[str]) -> CommandResult:
    """Serve the command of another proxy about a group that this one owns."""
    followed = followed_everywhere.follow(services, words)
    if followed is not None:
        return followed
    page = _move(services, moves, words[0], words[1:]) if len(words) > len(("method", "group")) else None
    return CommandResult(*(page or refused(HTTPStatus.NOT_FOUND, "this proxy does not know the command")))


def _move(services: ShareServices, moves: Moves, method: str, words: Sequence[str]) -> Page | None:
    """Begin a hand-over or a take-back, or return the phase of the latest."""
    group_id, action, *rest = words
    latest = moves.latest(group_id)
    if not rest:
        return _no_group(services, group_id) if latest is None else (HTTPStatus.OK, latest.view())
    if len(rest) > len(("seconds", "force")) or not rest[0].isdecimal() or rest[1:] not in ([], ["force"]):
        return None
    if method != "POST":
        return refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only POST begins a {action}")
    if action == "hand-over" and services.coordinator.group(group_id) is None:
        return _no_group(services, group_id)
    begin = moves.hand_over if action == "hand-over" else moves.take_back
    try:
        move = begin(group_id, wait_s=float(rest[0]), force=len(rest) > 1)
    except MoveRefused as refusal:
        return refused(HTTPStatus.CONFLICT, str(refusal))
    return HTTPStatus.ACCEPTED, move.view()


def _read(request: AdminRequest, body: Mapping[str, Any]) -> Page:
    if request.method == "POST":
        return refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served here")
    return HTTPStatus.OK, body


def _no_group(services: ShareServices, group_id: str) -> Page:
    """Report which proxy holds the group, or that this proxy cannot know it yet (503: query again later)."""
    name = f"share group {json.dumps(group_id)}"
    if services.holds(group_id):
        return refused(HTTPStatus.NOT_FOUND, f"{name} is held by another proxy of the fleet")
    reason = _why_unknown(services, services.gate.partition_of(group_id))
    if reason:
        return refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{name} is not known yet: {reason}; try again soon")
    return refused(HTTPStatus.NOT_FOUND, f"{name} is not held here")


def _completeness(services: ShareServices) -> dict[str, Any]:
    """Return "complete", and the reason if the list may lack groups because some of the state is not loaded."""
    reasons = filter(None, (_why_unknown(services, partition) for partition in services.gate.all))
    reason = next(reasons, "")
    return {"complete": not reason} | ({"reason": reason} if reason else {})


def _why_unknown(services: ShareServices, partition: int) -> str:
    """Return why the groups of one state partition cannot be known here now; empty if they can.

    In a fleet a partition that another proxy owns is no gap: its groups are known by name (`elsewhere`).
    """
    gate = services.gate
    if gate.lets_in((partition,)) or (services.fleet is not None and partition not in gate.loading):
        return ""
    _, reason = gate.why_not((partition,))
    return reason or "the group of proxies has not confirmed this proxy as the owner"


def _elsewhere(services: ShareServices) -> dict[str, Any]:
    """Return the groups whose details only other proxies of the fleet have."""
    return {} if services.fleet is None else {"elsewhere": sorted(services.fleet.groups)}
