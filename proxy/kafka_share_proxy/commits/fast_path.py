"""Fast path without a task for OffsetCommit in its most common form, which members send thousands of times a second.

Rule: commits/README.md 23. All other requests are left to `apis/k08_offset_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.commits.accepted_commits import PlannedPart, epoch_of
from kafka_share_proxy.commits.fast_commits import FastCommit, MergingCommit, Overdue
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.kernel import text_commits
from kafka_share_proxy.commits.locked_partitions import WHOLE_GROUP
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit
from kafka_share_proxy.commits.requested_commits import final_nul, room_for_ranges
from kafka_share_proxy.commits.services import EVERY_GROUP, CommitServices
from kafka_share_proxy.forwarding.served.interfaces import never_selected
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.offsets.commit_text import (
    PREFIX,
    CommitTextError,
    commit_text_version,
    one_range,
    parse_commit_text,
)
from kafka_share_proxy.wire.codec import commit_frames
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry
from kafka_share_proxy.wire.values import TopicPartition


class FastPath:
    """Fast path of common OffsetCommits. One per process. See interfaces.AtOnce."""

    def __init__(self, services: CommitServices) -> None:
        self._services = services
        self._overdue = Overdue(services.timers)
        self._serves_all = services.options.groups == EVERY_GROUP
        self._in_metadata = services.options.in_metadata

    def take(
        self,
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        is_selected_before: Callable[[str], bool] = never_selected,
    ) -> bool:
        parts = commit_frames.read(frame, request.version)
        if parts is None:
            return False
        _, group_id, member_id, entries = parts
        group = self._services.held.groups.get(group_id)
        if group is None or not self._may_serve(group) or is_selected_before(group_id):
            return False
        locks: dict[Hashable, bool] = {(group_id, *WHOLE_GROUP): False}
        planned: Sequence[PlannedPart] = ()
        merging = self._merging(group, frame, request, entries[0]) if len(entries) == 1 else None
        if merging is not None:
            locks[group_id, *merging.topic_partition] = True
        else:
            parts_planned = self._planned(group, entries)
            if parts_planned is None:
                return False
            planned = parts_planned
            for part in planned:
                locks[group_id, *part.topic_partition] = part.moves or part.text is not None
        if len(locks) <= len(entries) or not self._services.locks.enter(locks):
            return False  # a partition is named twice, or another request holds its lock
        if merging is not None:
            merging.held.plan_merged(merging.merged)
        commit = FastCommit(
            self._services, self._overdue, connection, group, request, member_id, locks, merging, planned
        )
        connection.begin_at_once(request)
        commit.send(frame)
        return True

    def _may_serve(self, group: CommittingGroup) -> bool:
        """True if this proxy owns a group that all proxies know to be marked."""
        services, gate = self._services, self._services.gate
        if not (group.is_marker_stored and group.is_marker_seen) or gate.refused or services.off:
            return False
        return (self._serves_all or services.serves(group.group_id)) and gate.lets_in(group.doors)

    def _merging(
        self, group: CommittingGroup, frame: memoryview, request: Request, entry: CommittedEntry
    ) -> MergingCommit | None:
        """Plan the commonest commit. None for all others."""
        metadata = entry[4]
        if not self._in_metadata or metadata is None or not metadata.startswith(PREFIX):
            return None
        topic = self._topic(entry[0])
        if topic is None:
            return None
        topic_partition = TopicPartition(topic.name, entry[1])
        held = group.partitions.get(topic_partition)
        bounds = None if held is None else held.bounds_in_text(topic.topic_id)
        if held is None or bounds is None:
            return None
        starts, ends = bounds
        if not starts and len(group.topics) > 1:
            return None
        services = self._services
        plan = text_commits.plan(
            frame,
            request.version,
            entry,
            held.committed,
            starts,
            ends,
            services.limit.characters,
            services.options.ranges_max,
        )
        return None if plan is None else MergingCommit(entry, topic_partition, held, *plan)

    def _planned(self, group: CommittingGroup, entries: Sequence[CommittedEntry]) -> list[PlannedPart] | None:
        """None if another request is needed first, or something has to be refused."""
        planned = []
        for entry in entries:
            part = self._part(group, entry)
            if part is None:
                return None
            planned.append(part)
        return planned

    def _part(self, group: CommittingGroup, entry: CommittedEntry) -> PlannedPart | None:
        name, partition, offset, leader_epoch, metadata, _, _, _ = entry
        topic = self._topic(name)
        if topic is None or offset < 0:
            return None
        options, topic_partition = self._services.options, TopicPartition(topic.name, partition)
        held = group.partitions.get(topic_partition)
        if held is None or not held.is_settled(topic.topic_id):
            return None
        try:
            commit = _commit_of(offset, metadata, options.ranges_max)
        except CommitTextError:
            return None
        if commit is None or (commit.done is not None and not (held.ranges or group.topics == {topic_partition.topic})):
            return None
        room = self._room(commit, metadata) if options.in_metadata else 0
        text = held.plan_kept(commit, room, options.ranges_max) if options.in_metadata else None
        if text is not None:
            return PlannedPart(entry, topic_partition, held, commit, offset, False, leader_epoch, text)
        plan = held.plan(commit)
        if plan.ranges > max(options.ranges_max, len(held.ranges)):
            return None
        if plan.offset > offset and isinstance(name, str):
            return None  # the topic id has to be verified first (commits/README.md rule 16)
        if options.in_metadata:
            text = held.plan_text(commit, room)
            if text is None or text.spills or text.rewinds:
                return None  # something has to be stored first
        epoch = epoch_of(held, offset, leader_epoch, plan.offset)
        return PlannedPart(entry, topic_partition, held, commit, plan.offset, plan.moves, epoch, text)

    def _room(self, commit: PartitionCommit, metadata: str | None) -> int:
        characters = self._services.limit.characters
        if metadata and commit.done is None:
            return room_for_ranges(metadata, None, characters)
        return characters - len(PREFIX) - len(final_nul(metadata))

    def _topic(self, name: str | bytes) -> Topic | None:
        """None if the topic has to be requested."""
        services = self._services
        view = services.services.topology
        if isinstance(name, bytes):
            return view.topic_by_id(name)
        return view.topic_since(name, services.timers.now() - services.options.topic_age_s)


def _commit_of(offset: int, metadata: str | None, ranges_max: int) -> PartitionCommit | None:
    """None if the metadata contains more than ranges. Raises CommitTextError."""
    ranges = None if metadata is None else one_range(metadata)
    if ranges is not None and ranges_max:
        return PartitionCommit(offset, ranges)
    if metadata is None or commit_text_version(metadata) is None:
        return PartitionCommit(offset)
    text = parse_commit_text(metadata, ranges_max)
    if text.catch_up or text.user_text is not None:
        return None
    return PartitionCommit(offset, text.ranges)
