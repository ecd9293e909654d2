"""Individual commits as audit events: one for each partition, when all of it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from proxy.audit.events import Place
from proxy.audit.stream import Audit
from proxy.commits.held_state import CommittingGroup
from proxy.commits.model.partition_commits import PartitionCommits
from proxy.durable.interfaces import JournalRefused
from proxy.loop.promise import CallbackOwner, Promise
from proxy.offsets.ranges import RangeChange
from proxy.wire.values import TopicPartition

RANGES_TOLD = 1000
"""Ranges of one event; how many there are is told all the same."""


class AcceptedCommit(NamedTuple):
    """What a commit that the broker accepted changed of one partition."""

    place: TopicPartition
    held: PartitionCommits
    change: RangeChange
    previous: int | None
    """The committed offset before; None: it was not known."""


@dataclass(slots=True)
class CommitAudit:
    """One per process, where audit is on."""

    audit: Audit
    state_owner: CallbackOwner
    """On whose behalf appends are followed to their end."""

    def committed(self, group: CommittingGroup, member_id: str, commits: Sequence[AcceptedCommit]) -> None:
        """What a request changed; its appends are under way, and it is told when they are stored."""
        events = [(Place(*commit.place), _values(commit)) for commit in commits]
        if not events:
            return
        appends = [append for append in group.appends if not append.done]
        left = len(appends)

        def settled() -> None:
            nonlocal left
            left -= 1
            if left <= 0 and all(map(_is_stored, appends)):
                for place, values in events:
                    self.audit.offer("commit", place, group.group_id, member_id or None, values)

        if not appends:
            settled()
        for append in appends:
            append.on_settled(settled, self.state_owner)


def _values(commit: AcceptedCommit) -> tuple[Any, ...]:
    """As things stand when it is accepted: others may follow before it is stored."""
    put, held = commit.change.put, commit.held
    return (
        held.mark,
        commit.previous,
        [(span.start, span.last) for span in put[:RANGES_TOLD]],
        len(put),
        len(held.ranges),
    )


def _is_stored(append: Promise[None]) -> bool:
    try:
        append.result()
    except JournalRefused:
        return False
    return True
