"""Common steps of OffsetCommit and TxnOffsetCommit: parse, mark the group, commit, log refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kafka_share_proxy.commits.marking import store_marker_first
from kafka_share_proxy.commits.refusals import report_refusals
from kafka_share_proxy.commits.requested_commits import RequestedCommit, requested_commits
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

Q = TypeVar("Q", "messages.OffsetCommitRequest", "messages.TxnOffsetCommitRequest")


class CommitWork(Protocol):
    """One request, with the partitions that were not refused."""

    throttle_time_ms: int

    async def run(self) -> None: ...


class Committed(NamedTuple):
    """Outcome of an OffsetCommit or TxnOffsetCommit."""

    commits: Sequence[RequestedCommit]
    throttle_time_ms: int = 0


async def commit(
    call: Call[Q],
    services: CommitServices,
    makes: Callable[[Call[Q], CommitServices, Sequence[RequestedCommit]], CommitWork],
) -> Committed:
    """Raises UpstreamLost, PartitionBusy."""
    group_id = call.message.group_id
    commits = await requested_commits(call, services)
    await store_marker_first(call, services, commits)
    accepted = [requested for requested in commits if requested.code is None]
    throttle_time_ms = 0
    if accepted:
        work = makes(call, services, accepted)
        await work.run()
        throttle_time_ms = work.throttle_time_ms
    report_refusals(services, group_id, commits)
    services.held.let_go(group_id)
    return Committed(commits, throttle_time_ms)


def refused_without_lease(services: CommitServices, commits: Sequence[RequestedCommit]) -> bool:
    """Refuse commits before they are forwarded if another proxy may be the owner: brokers do not fence them."""
    if services.gate.lease():
        return False
    for requested in commits:
        requested.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return True
