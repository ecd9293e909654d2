"""A group is marked before its first text goes on, and every proxy sends it to its owner (commits/README.md rule 2).

Only for a client that may READ the group: others could fill the topic with marks of groups of their invention.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from proxy.brokers.rights import ask_read_group, tell_read_group
from proxy.commits.asked_commits import AskedCommit, CommitRequest
from proxy.commits.services import CommitServices
from proxy.commits.storing import mark_group, stored
from proxy.forwarding.interfaces import Call
from proxy.loop.waiting import wait_until
from proxy.wire.errors import ErrorCode

MARK_SEEN_S = 0.1
"""In a fleet the first text of a group waits so long after its mark is stored: the others' tails take a fifth of that
to read it. One whose broker does not answer for longer may yet let a plain commit of that group pass."""


async def mark_first(call: Call[CommitRequest], services: CommitServices, found: Iterable[AskedCommit]) -> None:
    """Wait until the group is marked, if there is a text; where that fails its individual commits are refused.

    Raises UpstreamLost.
    """
    individual = [asked for asked in found if asked.text is not None and asked.code is None]
    group_id = call.message.group_id
    group = services.held.group(group_id)
    if not individual or (group.is_mark_stored and services.timers.now() >= group.mark_seen_at):
        return
    code = await _marked(call, services, group_id)
    for asked in individual if code != ErrorCode.NONE else ():
        asked.refuse(code, "that the group commits individually could not be stored")


async def _marked(call: Call[CommitRequest], services: CommitServices, group_id: str) -> ErrorCode:
    connection = call.connection
    answer = await ask_read_group(connection, group_id)
    refusal = tell_read_group(connection, group_id, answer, services.timers.now())
    if refusal != ErrorCode.NONE:
        return refusal
    group = services.held.group(group_id)
    if not group.is_marked:
        mark_group(services, group)
    code = await stored(services, group)
    if code == ErrorCode.NONE:
        if group.mark_seen_at == inf:
            group.mark_seen_at = services.timers.now() + MARK_SEEN_S
        if services.timers.now() < group.mark_seen_at:
            await wait_until(services.timers, group.mark_seen_at)
    return code
