"""One OffsetCommit that was sent to the coordinator on the fast path, until the client has its response.

The order of steps is that of `apis/k08_offset_commit`. Locks are released when changes are queued for storing. A
request is over when its client has a response or has disconnected. Its appends continue without it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kafka_share_proxy.commits.accepted_commits import PlannedPart, apply
from kafka_share_proxy.commits.apis.commit_responses import DEFINITE, codes_of, name_or_id
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.requested_commits import final_nul, metadata_with
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import outcome_of
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.durable.owner_routing import gate_change
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.loop.interfaces import Request, Timers
from kafka_share_proxy.loop.promise import Promise, Task
from kafka_share_proxy.offsets.commit_text import PREFIX
from kafka_share_proxy.wire.codec import commit_frames, frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.values import ZERO_UUID


class AppendTimeouts:
    """Timeouts of the commits that wait for their appends, by one timer."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[FastCommit, None] = {}
        self._has_timer = False

    def watch(self, commit: FastCommit) -> None:
        commit.deadline = self._timers.now() + RESPONSE_MAX_S
        self._waiting[commit] = None
        if not self._has_timer:
            self._set_timer()

    def forget(self, commit: FastCommit) -> None:
        self._waiting.pop(commit, None)

    def _set_timer(self) -> None:
        first = next(iter(self._waiting), None)
        self._has_timer = first is not None
        if first is not None:
            self._timers.call_at(first.deadline, self._on_timer)

    def _on_timer(self) -> None:
        now = self._timers.now()
        for commit in [commit for commit in self._waiting if commit.deadline <= now]:
            self.forget(commit)
            commit.connection.owner.call_soon(commit.on_timeout)
        self._set_timer()


def _metadata(part: PlannedPart) -> str | None:
    """Return the new metadata. None if it stays."""
    _, _, _, _, metadata, _, _, _ = part.entry
    ranges = "" if part.text is None else part.text.ranges
    if part.commit.done is None:
        return metadata_with(metadata, None, ranges) if ranges else None
    return PREFIX + ranges + final_nul(metadata) if ranges else final_nul(metadata)


def _may_append(part: PlannedPart) -> bool:
    if part.text is not None:
        return part.text.stores
    return part.commit.done is not None or bool(part.state.ranges)


@dataclass(eq=False)
class FastCommit(ExpectedResponse):
    """Commit on the fast path that waits for the coordinator. See interfaces.ExpectedResponse.

    Without slots: the defaults are then the class's, and not set for each commit.
    """

    services: CommitServices
    timeouts: AppendTimeouts
    connection: SynchronousFastPath
    group: CommittingGroup
    request: Request
    member_id: str
    locks: Mapping[Hashable, bool] | None
    """None after the locks are released."""
    parts: Sequence[PlannedPart]
    deadline: float = field(default=0.0, init=False)
    is_over: bool = field(default=False, init=False)
    correlation_id: int = field(default=0, init=False)
    response: bytes = field(default=b"", init=False)
    changed: Sequence[PlannedPart] = field(default=(), init=False)
    """Partitions to store before the response."""
    _appends: Sequence[Promise[None]] = field(default=(), init=False)

    def send(self, frame: memoryview) -> None:
        self.services.gate.enter(self.group.state_partitions, self.interrupted)
        self.correlation_id = int.from_bytes(frame[8:12], "big", signed=True)
        entries, fields, may_append = [], [], False
        for part in self.parts:
            entries.append(part.entry)
            fields.append((part.offset, part.epoch, _metadata(part)))
            may_append = may_append or _may_append(part)
        sent = commit_frames.rewritten(frame, self.request.version, entries, fields)
        if may_append:  # once the coordinator has accepted it
            self.services.journal.coming.begin(self, self.services.timers.now())
        self.connection.send_at_once(self.request, self.correlation_id, self, sent)

    # The coordinator's response

    def on_response(self, frame: bytes) -> bool:
        coming = self.services.journal.coming
        if self.is_over:
            coming.end(self, self.services.timers.now())
            return False
        self.response = frame
        try:
            self.changed = apply(self.services, self.group, self.member_id, self._accepted())
        except BaseException:
            self._close()
            raise
        finally:
            coming.end(self, self.services.timers.now())
            self._release_locks()
        if not self.changed:
            self.finish(NO_ERROR)
            return False
        self._appends = list(self.group.appends)
        self._finish_when_stored()
        if not self.is_over:
            self.timeouts.watch(self)
        return False

    def lost(self) -> None:
        self.services.journal.coming.end(self, self.services.timers.now())
        self._forget_committed()
        self._release_locks()
        self._close()

    def _accepted(self) -> Sequence[PlannedPart]:
        figures = self.services.figures
        if commit_frames.accepted(self.response, self.request.version, len(self.parts)):
            for part in self.parts:
                figures.count(NO_ERROR, is_individual=part.commit.done is not None)
            return self.parts
        codes, accepted = codes_of(self._decoded()), []
        for part in self.parts:
            code = ErrorCode.of(
                codes.get((part.entry[0], part.topic_partition.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            )
            figures.count(code, is_individual=part.commit.done is not None)
            if code == ErrorCode.OFFSET_METADATA_TOO_LARGE and part.text is not None and part.text.ranges:
                self._refuse_too_long(part)
            if code == NO_ERROR:
                accepted.append(part)
            elif code not in DEFINITE:
                part.state.forget_committed()
        return accepted

    def _refuse_too_long(self, part: PlannedPart) -> None:
        """Have the client repeat a commit that was too long because of added ranges (commits/README.md rule 29)."""
        self.services.limit.refused(self.services.base, len(_metadata(part) or ""))
        self.response = self._with_code(ErrorCode.COORDINATOR_NOT_AVAILABLE, [part])

    def _decoded(self) -> messages.OffsetCommitResponse:
        response: messages.OffsetCommitResponse
        _, response = frames.decode_response(self.request.key, self.request.version, memoryview(self.response)[4:])
        return response

    # Stored

    def _finish_when_stored(self) -> None:
        """Finish when every append of the group has ended."""
        if self.is_over:
            return
        for append in reversed(self._appends):
            if not append.done:
                connection = self.connection.owner
                append.on_settled(partial(connection.call_soon, self._finish_when_stored), self.services.state_owner)
                return
        for append in self._appends:
            code = outcome_of(append)
            if code != NO_ERROR:
                self.finish(code)
                return
        self.finish(NO_ERROR)

    def on_timeout(self) -> None:
        """Respond with 15. The appends continue."""
        if not self.is_over:
            self.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def finish(self, code: ErrorCode) -> None:
        """Respond, unless the lease has ended: another proxy may own the group, and hold other ranges."""
        if self.services.gate.lease():
            self._respond(code)
        else:
            Task(self._respond_once_leased(code), self._on_lease_wait_ended, self.connection.owner).start()

    async def _respond_once_leased(self, code: ErrorCode) -> None:
        """Wait for a bounded time until the lease is renewed (see OwnedApi)."""
        timers, gate = self.services.timers, self.services.gate
        deadline = timers.now() + HOLD_MAX_S
        while not (self.is_over or gate.lease() or timers.now() >= deadline):
            await gate_change(self.services, deadline)
        if gate.lease():
            self._respond(code)
        else:
            self._refuse()

    def _on_lease_wait_ended(self, task: Task[None]) -> None:
        if isinstance(task.error, Exception):
            self.connection.owner.failed(task.error)

    # The response to the client

    def _respond(self, code: ErrorCode) -> None:
        if self.is_over:
            return
        self._close()
        if code != NO_ERROR:
            self.response = self._with_code(code, self.changed)
        self.connection.immediate_response(self.response)

    def _with_code(self, code: ErrorCode, parts: Sequence[PlannedPart]) -> bytes:
        response = self._decoded()
        changed = {(part.entry[0], part.topic_partition.partition) for part in parts}
        for topic in response.topics or ():
            for entry in topic.partitions or ():
                if (name_or_id(topic), entry.partition_index) in changed:
                    entry.error_code = code
        return bytes(frames.response(self.request.key, self.request.version, self.correlation_id, response))

    def interrupted(self) -> None:
        """Refuse the request. Its appends may or may not be stored."""
        if self.is_over:
            return
        if self.locks is not None:
            self._forget_committed()
            self._release_locks()
        self.connection.owner.call_soon(self._refuse)

    def _refuse(self) -> None:
        if self.is_over:
            return
        self._close()
        response = messages.OffsetCommitResponse
        entries_by_topic: dict[str | bytes, list[messages.OffsetCommitResponse.OffsetCommitResponsePartition]] = {}
        for part in self.parts:
            entry = response.OffsetCommitResponsePartition(
                partition_index=part.topic_partition.partition, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            entries_by_topic.setdefault(part.entry[0], []).append(entry)
        topics = [
            response.OffsetCommitResponseTopic(
                name="" if isinstance(topic, bytes) else topic,
                topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
                partitions=entries,
            )
            for topic, entries in entries_by_topic.items()
        ]
        message = response(topics=topics)
        frame = frames.response(self.request.key, self.request.version, self.correlation_id, message)
        self.connection.immediate_response(bytes(frame))

    def _close(self) -> None:
        self.is_over = True
        self.timeouts.forget(self)
        self.services.gate.leave(self.group.state_partitions, self.interrupted)

    def _release_locks(self) -> None:
        locks, self.locks = self.locks, None
        if locks is not None:
            self.services.locks.leave(locks)

    def _forget_committed(self) -> None:
        for part in self.parts:
            part.state.forget_committed()
