"""What OffsetCommit and TxnOffsetCommit go through alike: read, marked, committed, told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from proxy.commits.asked_commits import AskedCommit, asked_commits
from proxy.commits.marking import mark_first
from proxy.commits.refusals import tell_refusals
from proxy.commits.services import CommitServices
from proxy.forwarding.interfaces import Call
from proxy.wire import messages

Q = TypeVar("Q", "messages.OffsetCommitRequest", "messages.TxnOffsetCommitRequest")
"""The class of the request."""


class CommitWork(Protocol):
    """One request, as far as it can be taken."""

    throttle_time_ms: int
    """That the broker asked for."""

    async def run(self) -> None:
        """Until each partition has its code. Raises UpstreamLost, PartitionBusy."""


class Committed(NamedTuple):
    """What became of a request."""

    found: Sequence[AskedCommit]
    """All partitions, each with its code."""
    throttle_time_ms: int = 0


async def commit(
    call: Call[Q],
    services: CommitServices,
    makes: Callable[[Call[Q], CommitServices, Sequence[AskedCommit]], CommitWork],
) -> Committed:
    """At the owner of the group; `makes` is given what can be taken. Raises UpstreamLost, PartitionBusy."""
    group_id = call.message.group_id
    found = await asked_commits(call, services)
    await mark_first(call, services, found)
    taken = [asked for asked in found if asked.code is None]
    throttle_time_ms = 0
    if taken:
        work = makes(call, services, taken)
        await work.run()
        throttle_time_ms = work.throttle_time_ms
    tell_refusals(services, group_id, found)
    services.held.let_go(group_id)
    return Committed(found, throttle_time_ms)
