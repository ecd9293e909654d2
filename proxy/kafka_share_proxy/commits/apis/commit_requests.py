"""Common steps of OffsetCommit and TxnOffsetCommit: parse, mark the group, commit, log refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kafka_share_proxy.commits.marking import mark_first
from kafka_share_proxy.commits.refusals import report_refusals
from kafka_share_proxy.commits.requested_commits import RequestedCommit, requested_commits
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages

Q = TypeVar("Q", "messages.OffsetCommitRequest", "messages.TxnOffsetCommitRequest")


class CommitWork(Protocol):
    """One request, with the partitions that were not refused."""

    throttle_time_ms: int
    """Throttle time in the broker's response."""

    async def run(self) -> None:
        """Run until each partition has its error code. Raises UpstreamLost, PartitionBusy."""


class Committed(NamedTuple):
    """Outcome of a request."""

    found: Sequence[RequestedCommit]
    """All partitions, each with its code."""
    throttle_time_ms: int = 0


async def commit(
    call: Call[Q],
    services: CommitServices,
    makes: Callable[[Call[Q], CommitServices, Sequence[RequestedCommit]], CommitWork],
) -> Committed:
    """Handle a commit at the owner of the group. `makes` receives the partitions that were not refused.

    Raises UpstreamLost, PartitionBusy.
    """
    group_id = call.message.group_id
    found = await requested_commits(call, services)
    await mark_first(call, services, found)
    taken = [asked for asked in found if asked.code is None]
    throttle_time_ms = 0
    if taken:
        work = makes(call, services, taken)
        await work.run()
        throttle_time_ms = work.throttle_time_ms
    report_refusals(services, group_id, found)
    services.held.let_go(group_id)
    return Committed(found, throttle_time_ms)
