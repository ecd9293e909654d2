"""Audit events for individual commits: one per partition, once all changes of the request are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_share_proxy.audit.events import Place
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.durable.interfaces import JournalRefused
from kafka_share_proxy.loop.promise import CallbackOwner, Promise
from kafka_share_proxy.offsets.ranges import RangeChange
from kafka_share_proxy.wire.values import TopicPartition

RANGES_REPORTED = 1000
"""Maximum number of ranges in an event, which always has the total."""


class AcceptedCommit(NamedTuple):
    """Changes of one partition by a commit that the broker accepted."""

    topic_partition: TopicPartition
    state: PartitionCommits
    change: RangeChange
    previous: int | None


@dataclass(slots=True)
class CommitAudit:
    """Audit events of individual commits. It exists only if audit is on."""

    audit: Audit
    state_owner: CallbackOwner

    def committed(self, group: CommittingGroup, member_id: str, commits: Sequence[AcceptedCommit]) -> None:
        events = [(Place(*commit.topic_partition), _values(commit)) for commit in commits]
        if not events:
            return
        appends = [append for append in group.appends if not append.done]
        pending = len(appends)

        def settled() -> None:
            nonlocal pending
            pending -= 1
            if pending <= 0 and all(map(_is_stored, appends)):
                for partition, values in events:
                    self.audit.offer("commit", partition, group.group_id, member_id or None, values)

        if not appends:
            settled()
        for append in appends:
            append.on_settled(settled, self.state_owner)


def _values(commit: AcceptedCommit) -> tuple[Any, ...]:
    """Copy the values: other commits may follow before this one is stored."""
    put, state = commit.change.put, commit.state
    return (
        state.committed,
        commit.previous,
        [(span.start, span.last) for span in put[:RANGES_REPORTED]],
        len(put),
        len(state.ranges),
    )


def _is_stored(append: Promise[None]) -> bool:
    try:
        append.result()
    except JournalRefused:
        return False
    return True
