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
    state: PartitionCommits
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
        entry, topic_partition, state, commit, offset, _, _, text = part
        _, _, requested_offset, requested_epoch, _, _, _, _ = entry
        committed_before = state.committed if state.is_committed_known else None
        change = state.accepted(commit, offset, epoch_of(state, requested_offset, requested_epoch, offset))
        topic_change = TopicChange(change, is_awaited=bool(change)) if text is None else state.after_text(text, change)
        if topic_change.change or topic_change.binding:
            changes.append(
                StoredChange(
                    topic_partition, state, topic_change.change, requested_epoch, member_id, topic_change.binding
                )
            )
        if topic_change.is_awaited or (commit.done is not None and (text is None or group.appends)):
            changed.append(part)
        if audit is not None:
            reported.append(AcceptedCommit(topic_partition, state, change, committed_before))
    if changes:
        store(services, group, changes)
    if audit is not None:
        audit.committed(group, member_id, reported)
    return changed


def epoch_of(state: PartitionCommits | None, requested_offset: int, requested_epoch: int, offset: int) -> int:
    """Return the leader epoch of the committed offset, or -1 (commits/README.md rule 7)."""
    if offset == requested_offset:
        return requested_epoch
    return state.committed_epoch if state is not None and state.is_committed_known and state.committed == offset else -1
