"""Share groups on the admin listener: GET /groups, GET /groups/ID, POST /groups/ID/members/MEMBER/release.

Ids are percent-encoded. By default, only requests from this machine may change something (`admin_changes`). Requests of
web pages never may; they are recognised by the Origin header that browsers send.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import unquote

import trio

from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups import group_report
from kafka_share_proxy.sharegroups.services import ShareServices

Changes = Literal["local", "any", "never"]
"""Clients that may change something through the admin listener."""

RELEASE_WAIT_S = 8.0
"""Seconds that a response waits until a release is durable. The release becomes durable in any case."""

Body = tuple[HTTPStatus, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """Parts of an HTTP request that matter here."""

    method: str
    path: str
    """Path without query, still percent-encoded."""
    from_page: bool
    """True if a web page sent the request."""
    peer: str
    """Address of the client; empty if unknown."""


class GroupPages:
    """Handler of the paths that begin with /groups."""

    def __init__(
        self, services: Callable[[], ShareServices | None], changes: Changes, is_decided: Callable[[], bool] = bool
    ) -> None:
        """Serve these services.

        `services` returns None until the cluster has responded, which `is_decided` reports, and if the brokers serve
        share groups.
        """
        self._services = services
        self._is_decided = is_decided
        self._changes = changes

    async def response(self, request: AdminRequest) -> Body | None:
        """Return the response, or None for a path of another handler."""
        parts = [unquote(part) for part in request.path.split("/")[1:]]
        if not parts or parts[0] != "groups":
            return None
        services = self._services()
        if services is None and self._is_decided():
            return _refused(HTTPStatus.NOT_FOUND, "share groups are served by the brokers, not here")
        if services is None:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "the cluster has not answered yet")
        match parts[1:]:
            case [] | [""]:
                listed = await _in_steps(group_report.groups(services))
                return _read(request, listed | _elsewhere(services) | _completeness(services))
            case [group_id]:
                group = group_report.group(services, group_id)
                return _no_group(services, group_id) if group is None else _read(request, group)
            case [group_id, "members", member_id, "release"]:
                return self._may_change(request) or await _release(services, group_id, member_id)
        return None

    def _may_change(self, request: AdminRequest) -> Body | None:
        """Return a refusal, or None if the request may change something."""
        if request.method != "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST releases")
        if self._changes == "never":
            return _refused(HTTPStatus.FORBIDDEN, "admin_changes is never")
        if request.from_page:
            return _refused(HTTPStatus.FORBIDDEN, "web pages may not change anything")
        if self._changes == "local" and not _is_loopback(request.peer):
            return _refused(HTTPStatus.FORBIDDEN, "only this machine may change something: admin_changes is local")
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


async def _release(services: ShareServices, group_id: str, member_id: str) -> Body:
    if services.coordinator.group(group_id) is not None and not group_report.knows_member(
        services, group_id, member_id
    ):
        ids = f"share group {json.dumps(group_id)} has no member {json.dumps(member_id)}"
        return _refused(HTTPStatus.NOT_FOUND, f"{ids}, and no member of that id holds records of it")
    released = group_report.release(services, group_id, member_id)
    if released is None:
        return _no_group(services, group_id)
    records, written = released
    with trio.move_on_after(RELEASE_WAIT_S):
        await _settled(written)
    body = {"group": group_id, "member": member_id, "released_records": records}
    if not written.done:
        return HTTPStatus.ACCEPTED, body | {"durable": False, "reasons": ["the journal has not confirmed it yet"]}
    reasons = group_report.refused(written.result())
    if reasons:
        return HTTPStatus.BAD_GATEWAY, body | {"released_records": 0, "durable": False, "reasons": reasons}
    return HTTPStatus.OK, body | {"durable": True}


async def _settled(promise: Promise[Any]) -> None:
    settled = trio.Event()
    promise.on_settled(settled.set)
    try:
        await settled.wait()
    finally:
        promise.forget(settled.set)


def _read(request: AdminRequest, body: Mapping[str, Any]) -> Body:
    if request.method == "POST":
        return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served here")
    return HTTPStatus.OK, body


def _no_group(services: ShareServices, group_id: str) -> Body:
    """Report which proxy holds the group, or that this proxy cannot know it yet (503: query again later)."""
    name = f"share group {json.dumps(group_id)}"
    if services.holds(group_id):
        return _refused(HTTPStatus.NOT_FOUND, f"{name} is held by another proxy of the fleet")
    reason = _why_unknown(services, services.gate.partition_of(group_id))
    if reason:
        return _refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{name} is not known yet: {reason}; try again soon")
    return _refused(HTTPStatus.NOT_FOUND, f"{name} is not held here")


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


def _refused(status: HTTPStatus, reason: str) -> Body:
    return status, {"reason": reason}


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
