"""The commonest commit while the brokers' metadata holds the ranges: one range is merged into the text of a partition.

At most one commit of a partition is in flight. An object for each partition keeps its locks, and relies on the open
door of the group, until another request needs the locks or the door closes. A commit that deviates continues as a
`FastCommit`: after a refusal, a change of the ranges, a lost connection.

A member repeats its commit with another range. Its request is then planned by a comparison of bytes, and so is its
response. What changes rarely (claims of other features, rights, the topic) is checked again after `REPEATED_MAX_S`
only. Both functions for it have few steps, and one object for each connection serves all of them: thousands a second.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from kafka_share_proxy.commits.accepted_commits import PlannedPart
from kafka_share_proxy.commits.fast_commits import AppendTimeouts, FastCommit
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.kernel import text_commits
from kafka_share_proxy.commits.locked_partitions import WHOLE_GROUP
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits, TextBounds
from kafka_share_proxy.commits.model.topic_records import TextPlan
from kafka_share_proxy.commits.requested_commits import NUL, final_nul
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.served.interfaces import RepeatableRequest
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.offsets.commit_text import PREFIX
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.codec import commit_frames
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry
from kafka_share_proxy.wire.errors import NO_ERROR
from kafka_share_proxy.wire.values import TopicPartition

REPEATED_MAX_S = 0.1
"""Seconds after which a repeated commit is read and checked completely again."""


class MergingPartition:
    """Partition whose commits are merged into its text (partition_locks.Keeper). At most one of them is in flight."""

    __slots__ = (
        "_commit",
        "_locks",
        "_timeouts",
        "_topic_partition",
        "group",
        "in_flight",
        "is_kept",
        "is_recalled",
        "services",
        "state",
        "topic_id_partition",
    )

    def __init__(
        self,
        services: CommitServices,
        timeouts: AppendTimeouts,
        group: CommittingGroup,
        topic_partition: TopicPartition,
        state: PartitionCommits,
        topic_id: bytes,
    ) -> None:
        self.services, self._timeouts, self.group = services, timeouts, group
        self._topic_partition, self.state = topic_partition, state
        self.topic_id_partition = topic_id, topic_partition.partition
        self._locks: Mapping[Hashable, bool] = {
            (group.group_id, *WHOLE_GROUP): False,
            (group.group_id, *topic_partition): True,
        }
        self.in_flight: RepeatedCommit | None = None
        self._commit: FastCommit | None = None
        """The commit in flight, after it deviated. Then this object serves no other."""
        self.is_kept = False
        """True while it has the locks, and the door of the group is open."""
        self.is_recalled = False
        """True if the locks are released with the response to the commit in flight."""

    def take(self, connection: SynchronousFastPath, frame: memoryview, request: Request, entry: CommittedEntry) -> bool:
        """Return False if the commit is uncommon, or another request holds a lock."""
        services, state = self.services, self.state
        if self.in_flight is not None:
            return False
        bounds = state.kept_bounds or state.bounds_in_text(self.topic_id_partition[0])
        if bounds is None or (not bounds[0] and len(self.group.topics) > 1):
            return False
        sample = text_commits.Sample(request.version, entry, services.options.ranges_max, None)
        plan = text_commits.plan(frame, len(frame), sample, state.committed, bounds, services.limit.characters)
        if plan is None or not (self.is_kept or self._keep()):
            return False
        sample = sample._replace(frame=bytes(frame))
        self.in_flight = repeated = RepeatedCommit(self, connection, request, sample, bounds, plan)
        connection.send_at_once(request, plan[1], repeated, plan[0])
        connection.repeated = repeated
        return True

    # The locks and the door

    def _keep(self) -> bool:
        """Return False if another request holds a lock."""
        if not self.services.locks.keep(self._locks, self):
            return False
        self.services.gate.rely(self.group.state_partitions, self.door_closes)
        self.is_kept = True
        return True

    def give_back(self) -> None:
        if self.in_flight is not None:
            self.is_recalled = True
        elif self.is_kept:
            self.release()

    def door_closes(self) -> None:
        """Serve no other commit. The one in flight may have its response, or be refused."""
        if self.in_flight is not None:
            self.deviating()
        elif self.is_kept:
            self.release()

    def release(self) -> None:
        self._keep_no_longer()
        self.services.locks.leave(self._locks)

    def _keep_no_longer(self) -> None:
        self.is_kept = self.is_recalled = False
        self.services.gate.rely_no_longer(self.group.state_partitions, self.door_closes)
        self.services.locks.keep_no_longer(self._locks, self)

    def deviating(self) -> FastCommit:
        """Return the commit in flight as one that may have any outcome."""
        if self._commit is not None:
            return self._commit
        assert self.in_flight is not None  # noqa: S101  # a response, a loss or a closing door concerns a commit
        connection, request, plan = self.in_flight.last()
        self.in_flight = None
        sent, correlation_id, _, _, _, _, start, end = plan
        parts = commit_frames.read(sent, request.version)
        assert parts is not None  # noqa: S101  # it was planned
        _, _, member_id, (entry,) = parts
        part = self._planned(entry, OffsetRanges.of_one(start, end))
        group, gate = self.group, self.services.gate
        group.merging.pop(self.topic_id_partition, None)
        locks = None
        if self.is_kept:
            locks = self._locks
            self._keep_no_longer()
        commit = FastCommit(self.services, self._timeouts, connection, group, request, member_id, locks, [part])
        commit.correlation_id = correlation_id
        gate.enter(group.state_partitions, commit.interrupted)
        self._commit = commit
        return commit

    def _planned(self, sent: CommittedEntry, done: OffsetRanges) -> PlannedPart:
        """Return the plan of the model. `sent`: what the broker got, with all ranges in place of the member's."""
        topic_name_or_id, partition, offset, epoch, metadata, offset_at, metadata_at, after_metadata = sent
        text = metadata or ""
        member_text = f"{PREFIX}{done}{final_nul(text)}"
        positions = offset_at, metadata_at, after_metadata
        entry = CommittedEntry(topic_name_or_id, partition, offset, epoch, member_text, *positions)
        ranges = TextPlan(text[len(PREFIX) :].rstrip(NUL))
        commit = PartitionCommit(offset, done)
        return PlannedPart(entry, self._topic_partition, self.state, commit, offset, False, epoch, ranges)


class RepeatedCommit(RepeatableRequest):
    """Commit of a connection that was read completely, and others that differ from it in their range only."""

    __slots__ = (
        "_accepted",
        "_bounds",
        "_connection",
        "_epoch",
        "_limit",
        "_merging",
        "_plan",
        "_sample",
        "_services",
        "_state",
        "_until",
        "request",
    )

    def __init__(
        self,
        merging: MergingPartition,
        connection: SynchronousFastPath,
        request: Request,
        sample: text_commits.Sample,
        bounds: TextBounds,
        plan: text_commits.Plan,
    ) -> None:
        """`bounds`, `plan`: of this first one."""
        self._merging, self._connection, self.request = merging, connection, request
        self._sample, self._epoch = sample, sample.entry[3]
        self._state, self._bounds, self._plan = merging.state, bounds, plan
        self._services, self._limit = merging.services, merging.services.limit
        self._until = merging.services.timers.now() + REPEATED_MAX_S
        self._accepted = b""
        """Response to the first one that was accepted."""

    def plan(self, received: memoryview, size: int, now: float) -> text_commits.Plan | None:
        merging, state, bounds = self._merging, self._state, self._bounds
        if merging.in_flight is not None or not merging.is_kept or state.kept_bounds is not bounds:
            return None
        if now >= self._until or not self._services.gate.lease():
            return None
        characters = self._limit.characters
        plan = text_commits.plan(received, size, self._sample, state.committed, bounds, characters)
        if plan is not None:
            merging.in_flight, self._plan = self, plan
        return plan

    def on_response(self, frame: bytes) -> bool:
        merging, state, services, bounds = self._merging, self._state, self._services, self._bounds
        if merging.in_flight is not self or merging.group.appends or state.kept_bounds is not bounds:
            return merging.deviating().on_response(frame)
        if text_commits.merge_repeated(frame, self._accepted, bounds, self._plan):
            state.committed_epoch = self._epoch
        elif commit_frames.accepted(frame, self.request.version, 1):
            self._accepted = frame
            _, _, low, high, start, end, _, _ = self._plan
            state.merge_text(low, high, start, end, self._epoch)
        else:
            return merging.deviating().on_response(frame)
        services.figures.individual += 1
        if not services.gate.lease():
            merging.release()
            commit = merging.deviating()
            commit.response = frame
            commit.finish(NO_ERROR)
            return False
        merging.in_flight = None
        if merging.is_recalled:
            merging.release()
        return self._connection.forwards_response()

    def lost(self) -> None:
        self._merging.deviating().lost()

    def last(self) -> tuple[SynchronousFastPath, Request, text_commits.Plan]:
        """Return the connection of the last commit, its request, and its plan."""
        return self._connection, self.request, self._plan
