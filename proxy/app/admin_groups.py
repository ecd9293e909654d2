"""Share groups on the admin listener: GET /groups, GET /groups/ID, POST /groups/ID/members/MEMBER/release.

Ids are percent-encoded. What changes something is done only for this machine unless the settings say otherwise, and
never for a web page: browsers name the page's origin.
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

from proxy.loop.promise import Promise
from proxy.sharegroups import group_report
from proxy.sharegroups.services import ShareServices

Changes = Literal["local", "any", "never"]
"""Who may change something through the admin listener."""

RELEASE_WAIT_S = 8.0
"""How long an answer waits until a release is durable; it will be in any case."""

Body = tuple[HTTPStatus, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRequest:
    """The part of a request that counts here."""

    method: str
    path: str
    """Without query, still encoded."""
    from_page: bool
    """A web page sent it."""
    peer: str
    """The address it came from; empty where that is not known."""


class GroupPages:
    """Answers what begins with /groups."""

    def __init__(self, services: Callable[[], ShareServices | None], changes: Changes) -> None:
        """`services`: None while the cluster has not answered."""
        self._services = services
        self._changes = changes

    async def answer(self, asked: AdminRequest) -> Body | None:
        """The answer; None for a path that is not one of these."""
        parts = [unquote(part) for part in asked.path.split("/")[1:]]
        if not parts or parts[0] != "groups":
            return None
        services = self._services()
        if services is None:
            return _refused(HTTPStatus.SERVICE_UNAVAILABLE, "the cluster has not answered yet")
        if not services.serve_share:
            return _refused(HTTPStatus.NOT_FOUND, "share groups are served by the brokers, not here")
        match parts[1:]:
            case [] | [""]:
                return _read(asked, await _in_steps(group_report.groups(services)) | _elsewhere(services))
            case [group_id]:
                found = group_report.group(services, group_id)
                return _no_group(services, group_id) if found is None else _read(asked, found)
            case [group_id, "members", member_id, "release"]:
                return self._may_change(asked) or await _release(services, group_id, member_id)
        return None

    def _may_change(self, asked: AdminRequest) -> Body | None:
        """Why not, or None."""
        if asked.method != "POST":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST releases")
        if self._changes == "never":
            return _refused(HTTPStatus.FORBIDDEN, "admin_changes is never")
        if asked.from_page:
            return _refused(HTTPStatus.FORBIDDEN, "web pages may not change anything")
        if self._changes == "local" and not _is_loopback(asked.peer):
            return _refused(HTTPStatus.FORBIDDEN, "only this machine may change something: admin_changes is local")
        return None


async def _in_steps(steps: Generator[None, None, group_report.View]) -> group_report.View:
    """What it gives in the end; clients are served in between."""
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
        return _refused(HTTPStatus.NOT_FOUND, f"{ids}, and nobody of that id holds records of it")
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
    came = trio.Event()
    promise.on_settled(came.set)
    try:
        await came.wait()
    finally:
        promise.forget(came.set)


def _read(asked: AdminRequest, body: Mapping[str, Any]) -> Body:
    if asked.method == "POST":
        return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served here")
    return HTTPStatus.OK, body


def _no_group(services: ShareServices, group_id: str) -> Body:
    where = "held by another proxy of the fleet" if services.holds(group_id) else "not held here"
    return _refused(HTTPStatus.NOT_FOUND, f"share group {json.dumps(group_id)} is {where}")


def _elsewhere(services: ShareServices) -> dict[str, Any]:
    """The groups that only other proxies of the fleet can tell about."""
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
