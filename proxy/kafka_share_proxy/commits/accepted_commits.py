"""Commits that a broker accepted change memory and are queued for storing, on the fast path and by the handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka_share_proxy.commits.audit_events import AcceptedCommit
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from kafka_share_proxy.commits.model.topic_records import TextPlan, TopicChange
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import StoredChange, store
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry
from kafka_share_proxy.wire.values import TopicPartition


class PlannedPart(NamedTuple):
    """One partition of a request, as it is sent to the coordinator."""

    entry: CommittedEntry
    topic_partition: TopicPartition
    held: PartitionCommits
    commit: PartitionCommit
    offset: int
    """The offset to commit."""
    moves: bool
    epoch: int
    """The leader epoch of `offset`."""
    text: TextPlan | None = None
    """Ranges in the metadata. None if all ranges are in the topic."""


def apply(
    services: CommitServices, group: CommittingGroup, member_id: str, accepted: Sequence[PlannedPart]
) -> list[PlannedPart]:
    """Return the parts whose ranges must be stored before the client hears of it."""
    audit, changes, changed, reported = services.audit, [], [], []
    for part in accepted:
        entry, place, held, commit, offset, _, _, text = part
        before = held.committed if held.is_committed_known else None
        change = held.accepted(commit, offset, epoch_of(held, entry[2], entry[3], offset))
        topic = TopicChange(change, is_awaited=bool(change)) if text is None else held.after_text(text, change)
        if topic.change or topic.binding:
            changes.append(StoredChange(place, held, topic.change, entry[3], member_id, topic.binding))
        if topic.is_awaited or (commit.done is not None and (text is None or group.appends)):
            changed.append(part)
        if audit is not None:
            reported.append(AcceptedCommit(place, held, change, before))
    if changes:
        store(services, group, changes)
    if audit is not None:
        audit.committed(group, member_id, reported)
    return changed


def epoch_of(held: PartitionCommits | None, requested_offset: int, requested_epoch: int, offset: int) -> int:
    """Return the leader epoch of the committed offset, or -1 (commits/README.md rule 7)."""
    if offset == requested_offset:
        return requested_epoch
    return held.committed_epoch if held is not None and held.is_committed_known and held.committed == offset else -1
