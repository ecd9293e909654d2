"""The commonest commit while the brokers' metadata holds the ranges: one range is merged into the text of a partition.

At most one commit of a partition is in flight, so one object for each partition serves all of them, and a commit
creates none. The object keeps the locks of the partition, and relies on the open door of its group, until another
request needs the locks or the door closes. A commit that deviates continues as a `FastCommit`: after a refusal, a
change of the ranges, a lost connection.

A member repeats its commit with another range. Its request is then planned by a comparison of bytes, and what changes
rarely (claims of other features, rights, the topic) is checked again after `REPEATED_MAX_S` only.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from kafka_share_proxy.commits.accepted_commits import PlannedPart
from kafka_share_proxy.commits.fast_commits import AppendTimeouts, FastCommit
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.kernel import text_commits
from kafka_share_proxy.commits.locked_partitions import WHOLE_GROUP
from kafka_share_proxy.commits.model.partition_commits import (
    MergedRange,
    PartitionCommit,
    PartitionCommits,
    TextBounds,
)
from kafka_share_proxy.commits.model.topic_records import TextPlan
from kafka_share_proxy.commits.requested_commits import NUL
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.offsets.commit_text import PREFIX, parse_commit_text
from kafka_share_proxy.wire.codec import commit_frames
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry
from kafka_share_proxy.wire.errors import NO_ERROR
from kafka_share_proxy.wire.values import TopicPartition

REPEATED_MAX_S = 0.1
"""Seconds after which a repeated commit is read and checked completely again."""

InFlight = tuple[SynchronousFastPath, Request, bytes, bytes, TextBounds, MergedRange, int]
"""Connection, request, the client's frame, the frame for the coordinator, the ranges that it was planned with, effect
on them, leader epoch. A plain tuple, because each of thousands of commits a second creates one.
"""


class MergingPartition(ExpectedResponse):
    """Partition whose commits are merged into its text (partition_locks.Keeper). At most one of them is in flight."""

    __slots__ = (
        "_commit",
        "_group",
        "_in_flight",
        "_is_recalled",
        "_locks",
        "_services",
        "_state",
        "_timeouts",
        "_topic_partition",
        "is_kept",
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
        self._services, self._timeouts, self._group = services, timeouts, group
        self._topic_partition, self._state = topic_partition, state
        self.topic_id_partition = topic_id, topic_partition.partition
        self._locks: Mapping[Hashable, bool] = {
            (group.group_id, *WHOLE_GROUP): False,
            (group.group_id, *topic_partition): True,
        }
        self._in_flight: InFlight | None = None
        self._commit: FastCommit | None = None
        """The commit in flight, after it deviated. Then this object serves no other."""
        self.is_kept = False
        """True while it has the locks, and the door of the group is open."""
        self._is_recalled = False
        """True if the locks are released with the response to the commit in flight."""

    def take(self, connection: SynchronousFastPath, frame: memoryview, request: Request, entry: CommittedEntry) -> bool:
        """Return False if the commit is uncommon, or another request holds a lock."""
        if not self.send(connection, frame, request, entry):
            return False
        connection.serve_repeated = RepeatedCommit(self._services, self, request, entry, bytes(frame)).take
        return True

    def send(
        self,
        connection: SynchronousFastPath,
        frame: memoryview,
        request: Request,
        entry: CommittedEntry,
        sample: bytes | None = None,
    ) -> bool:
        """Return False also if the frame does not repeat the sample, whose entry is given."""
        if self._in_flight is not None:
            return False
        services, state = self._services, self._state
        bounds = state.kept_bounds or state.bounds_in_text(self.topic_id_partition[0])
        if bounds is None:
            return False
        starts, ends = bounds
        if not starts and len(self._group.topics) > 1:
            return False
        characters, ranges_max = services.limit.characters, services.options.ranges_max
        plan = text_commits.plan(
            frame, request.version, entry, state.committed, starts, ends, characters, ranges_max, sample
        )
        if plan is None or not (self.is_kept or self._keep()):
            return False
        sent, merged = plan
        self._in_flight = connection, request, bytes(frame), sent, bounds, merged, entry[3]
        connection.send_at_once(request, int.from_bytes(sent[8:12], "big", signed=True), self, sent)
        return True

    def on_response(self, frame: memoryview) -> bool:
        in_flight, services = self._in_flight, self._services
        if in_flight is None or self._group.appends:
            return self._deviating().on_response(frame)
        connection, request, _, _, bounds, merged, leader_epoch = in_flight
        if not commit_frames.accepted(frame, request.version, 1) or not self._state.merged(
            bounds, merged, leader_epoch
        ):
            return self._deviating().on_response(frame)
        services.figures.commits["individual"] += 1
        if not services.gate.lease():
            self._release()
            commit = self._deviating()
            commit.response = bytes(frame)
            commit.finish(NO_ERROR)
            return False
        self._in_flight = None
        if self._is_recalled:
            self._release()
        return connection.forwards_response()

    def lost(self) -> None:
        self._deviating().lost()

    # The locks and the door

    def _keep(self) -> bool:
        """Return False if another request holds a lock."""
        if not self._services.locks.keep(self._locks, self):
            return False
        self._services.gate.rely(self._group.state_partitions, self.door_closes)
        self.is_kept = True
        return True

    def give_back(self) -> None:
        if self._in_flight is not None:
            self._is_recalled = True
        elif self.is_kept:
            self._release()

    def door_closes(self) -> None:
        """Serve no other commit. The one in flight may have its response, or be refused."""
        if self._in_flight is not None:
            self._deviating()
        elif self.is_kept:
            self._release()

    def _release(self) -> None:
        self._keep_no_longer()
        self._services.locks.leave(self._locks)

    def _keep_no_longer(self) -> None:
        self.is_kept = self._is_recalled = False
        self._services.gate.rely_no_longer(self._group.state_partitions, self.door_closes)
        self._services.locks.keep_no_longer(self._locks, self)

    def _deviating(self) -> FastCommit:
        """Return the commit in flight as one that may have any outcome."""
        if self._commit is not None:
            return self._commit
        assert self._in_flight is not None  # noqa: S101  # a response, a loss or a closing door concerns a commit
        connection, request, frame, sent, _, _, _ = self._in_flight
        self._in_flight = None
        parts, sent_parts = commit_frames.read(frame, request.version), commit_frames.read(sent, request.version)
        assert parts is not None and sent_parts is not None  # noqa: S101, PT018  # they were planned
        _, _, member_id, (entry,) = parts
        _, _, _, (sent_entry,) = sent_parts
        part = self._planned(entry, sent_entry[4] or "")
        group, gate = self._group, self._services.gate
        group.merging.pop(self.topic_id_partition, None)
        locks = None
        if self.is_kept:
            locks = self._locks
            self._keep_no_longer()
        commit = FastCommit(self._services, self._timeouts, connection, group, request, member_id, locks, [part])
        commit.correlation_id = int.from_bytes(sent[8:12], "big", signed=True)
        gate.enter(group.state_partitions, commit.interrupted)
        self._commit = commit
        return commit

    def _planned(self, entry: CommittedEntry, text: str) -> PlannedPart:
        """Return the plan of the model. `text`: metadata that was sent."""
        _, _, offset, epoch, metadata, _, _, _ = entry
        commit = PartitionCommit(offset, parse_commit_text(metadata or "").ranges)
        ranges = TextPlan(text[len(PREFIX) :].rstrip(NUL))
        return PlannedPart(entry, self._topic_partition, self._state, commit, offset, False, epoch, ranges)


class RepeatedCommit:
    """Last commit of a connection that was read completely, for others that differ from it in their range only."""

    __slots__ = ("_entry", "_frame", "_merging", "_now", "_request", "_services", "_until")

    def __init__(
        self,
        services: CommitServices,
        merging: MergingPartition,
        request: Request,
        entry: CommittedEntry,
        frame: bytes,
    ) -> None:
        self._services, self._merging = services, merging
        self._request, self._entry, self._frame = request, entry, frame
        self._now = services.timers.now
        self._until = self._now() + REPEATED_MAX_S

    def take(self, connection: SynchronousFastPath, frame: memoryview) -> bool:
        """Return False if the request does not repeat it, or has to be read and checked completely."""
        merging = self._merging
        if not merging.is_kept or self._now() >= self._until or not self._services.gate.lease():
            return False
        return merging.send(connection, frame, self._request, self._entry, self._frame)
