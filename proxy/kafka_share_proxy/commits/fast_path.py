"""Fast path without a task for OffsetCommit in its most common form, which members send thousands of times a second.

Rule: commits/README.md 23. All other requests are left to `apis/k08_offset_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from kafka_share_proxy.brokers.cluster_metadata import Topic
from kafka_share_proxy.commits.accepted_commits import PlannedPart, epoch_of
from kafka_share_proxy.commits.fast_commits import AppendTimeouts, FastCommit
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.locked_partitions import WHOLE_GROUP
from kafka_share_proxy.commits.merging_commits import MergingPartition
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
    """Fast path of common OffsetCommits. One per process. See interfaces.SynchronousHandler."""

    def __init__(self, services: CommitServices) -> None:
        self._services = services
        self._timeouts = AppendTimeouts(services.timers)
        self._serves_all = services.options.groups == EVERY_GROUP
        self._in_metadata = services.options.in_metadata
        self._now = services.timers.now

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
        if not (self._serves_all or self._services.serves(group_id)):
            return False
        group = self._services.held.groups.get(group_id)
        if group is None or not self._services.admits(group) or is_selected_before(group_id):
            return False
        if self._in_metadata and len(entries) == 1:
            merging = self._merging(group, entries[0])
            if merging is not None and merging.take(connection, frame, request, entries[0]):
                return True
        return self._take_planned(connection, frame, request, group, member_id, entries)

    def _take_planned(
        self,
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        group: CommittingGroup,
        member_id: str,
        entries: Sequence[CommittedEntry],
    ) -> bool:
        planned = self._planned(group, entries)
        if planned is None:
            return False
        locks: dict[Hashable, bool] = {(group.group_id, *WHOLE_GROUP): False}
        for part in planned:
            locks[group.group_id, *part.topic_partition] = part.moves or part.text is not None
        if len(locks) <= len(entries) or not self._services.locks.enter(locks):
            return False  # a partition is named twice, or another request holds its lock
        commit = FastCommit(self._services, self._timeouts, connection, group, request, member_id, locks, planned)
        commit.send(frame)
        return True

    def _merging(self, group: CommittingGroup, entry: CommittedEntry) -> MergingPartition | None:
        """Return the partition if this proxy merges the commit into its text.

        None if the commit has no ranges, another request is needed first, or commits are reported one by one.
        """
        topic_name_or_id, partition, _, _, metadata, _, _, _ = entry
        if metadata is None or not metadata.startswith(PREFIX) or self._services.audit is not None:
            return None
        topic = self._topic(topic_name_or_id)
        if topic is None:
            return None
        topic_id_partition = topic.topic_id, partition
        merging = group.merging.get(topic_id_partition)
        if merging is None:
            topic_partition = TopicPartition(topic.name, partition)
            state = group.partitions.get(topic_partition)
            if state is not None:
                if len(group.merging) >= len(group.partitions):
                    group.stop_merging()  # some are of deleted topics
                merging = MergingPartition(
                    self._services, self._timeouts, group, topic_partition, state, topic.topic_id
                )
                group.merging[topic_id_partition] = merging
        return merging

    def _planned(self, group: CommittingGroup, entries: Sequence[CommittedEntry]) -> list[PlannedPart] | None:
        """Return the plan of each partition. None if another request or a refusal is needed first."""
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
        state = group.partitions.get(topic_partition)
        if state is None or not state.is_settled(topic.topic_id):
            return None
        try:
            commit = _commit_of(offset, metadata, options.ranges_max)
        except CommitTextError:
            return None
        if commit is None or (
            commit.done is not None and not (state.ranges or group.topics == {topic_partition.topic})
        ):
            return None
        room = self._room(commit, metadata) if options.in_metadata else 0
        text = state.plan_kept(commit, room, options.ranges_max) if options.in_metadata else None
        if text is not None:
            return PlannedPart(entry, topic_partition, state, commit, offset, False, leader_epoch, text)
        plan = state.plan(commit)
        if plan.ranges > max(options.ranges_max, len(state.ranges)):
            return None
        if plan.offset > offset and isinstance(name, str):
            return None  # the topic id has to be verified first (commits/README.md rule 16)
        if options.in_metadata:
            text = state.plan_text(commit, room)
            if text is None or text.spills or text.rewinds:
                return None  # something has to be stored first
        epoch = epoch_of(state, offset, leader_epoch, plan.offset)
        return PlannedPart(entry, topic_partition, state, commit, plan.offset, plan.moves, epoch, text)

    def _room(self, commit: PartitionCommit, metadata: str | None) -> int:
        characters = self._services.limit.characters
        if metadata and commit.done is None:
            return room_for_ranges(metadata, None, characters)
        return characters - len(PREFIX) - len(final_nul(metadata))

    def _topic(self, name: str | bytes) -> Topic | None:
        """Return the topic, or None if it has to be requested."""
        services = self._services
        topology = services.base.topology
        if isinstance(name, bytes):
            return topology.topic_by_id(name)
        return topology.topic_since(name, self._now() - services.options.topic_age_s)


def _commit_of(offset: int, metadata: str | None, ranges_max: int) -> PartitionCommit | None:
    """Return the commit of one partition, or None if its metadata contains more than ranges. Raises CommitTextError."""
    ranges = None if metadata is None else one_range(metadata)
    if ranges is not None and ranges_max:
        return PartitionCommit(offset, ranges)
    if metadata is None or commit_text_version(metadata) is None:
        return PartitionCommit(offset)
    text = parse_commit_text(metadata, ranges_max)
    if text.catch_up or text.user_text is not None:
        return None
    return PartitionCommit(offset, text.ranges)
