"""One OffsetCommit that went to the coordinator the short way: what its answer changes, and when the client hears.

As `apis/k08_offset_commit`: what the coordinator accepted changes memory and is told to be stored, then others may have
the partitions. The coordinator's answer goes to the client as it came, once all of that is stored; where that fails the
partitions get 15. A request is over when its client has an answer, or has gone; appends go on without it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from proxy.commits.apis.commit_answers import DEFINITE, codes_of, name_or_id
from proxy.commits.apis.k08_offset_commit import epoch_of
from proxy.commits.asked_commits import final_nul
from proxy.commits.audit_events import AcceptedCommit
from proxy.commits.held_state import CommittingGroup
from proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from proxy.commits.services import CommitServices
from proxy.commits.storing import StoredChange, outcome_of, store
from proxy.durable.gate import HOLD_MAX_S
from proxy.durable.interfaces import ANSWER_MAX_S
from proxy.durable.owner_routing import gate_change
from proxy.forwarding.interfaces import AtOnceConnection, AwaitedAnswer
from proxy.loop.interfaces import Request, Timers
from proxy.loop.promise import Promise, Task
from proxy.wire import commit_frames, frames, messages
from proxy.wire.commit_frames import CommittedEntry
from proxy.wire.errors import NO_ERROR, ErrorCode
from proxy.wire.values import ZERO_UUID, TopicPartition


class PlannedPart(NamedTuple):
    """One partition of a request, as it goes to the coordinator."""

    entry: CommittedEntry
    place: TopicPartition
    held: PartitionCommits
    commit: PartitionCommit
    offset: int
    """To be committed."""
    moves: bool
    epoch: int
    """The leader epoch of that offset."""


class Overdue:
    """Tells commits when they have waited for their appends for too long."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[UsualCommit, None] = {}
        """In the order of their deadlines; whoever is answered leaves: members commit thousands of times a second."""
        self._is_planned = False

    def watch(self, commit: UsualCommit) -> None:
        """It waits from now on."""
        commit.deadline = self._timers.now() + ANSWER_MAX_S
        self._waiting[commit] = None
        if not self._is_planned:
            self._plan()

    def forget(self, commit: UsualCommit) -> None:
        """It waits no longer; harmless where it did not."""
        self._waiting.pop(commit, None)

    def _plan(self) -> None:
        first = next(iter(self._waiting), None)
        self._is_planned = first is not None
        if first is not None:
            self._timers.call_at(first.deadline, self._ring)

    def _ring(self) -> None:
        now = self._timers.now()
        for commit in [each for each in self._waiting if each.deadline <= now]:
            self.forget(commit)
            commit.connection.owner.call_soon(commit.overdue)
        self._plan()


@dataclass(slots=True, eq=False)
class UsualCommit(AwaitedAnswer):
    """One request on its way; see interfaces.AwaitedAnswer."""

    services: CommitServices
    others: Overdue
    connection: AtOnceConnection
    group: CommittingGroup
    request: Request
    member_id: str
    parts: Sequence[PlannedPart]
    locks: dict[Hashable, bool] | None
    """What it has of the partitions; None: nothing any more."""
    deadline: float = 0.0
    is_over: bool = False
    correlation_id: int = 0
    answer: bytes = b""
    """The coordinator's."""
    changed: Sequence[PlannedPart] = ()
    """Partitions whose change has to be stored before the client hears."""
    _appends: Sequence[Promise[None]] = ()

    def send(self, frame: memoryview) -> None:
        """To the coordinator, with what is planned."""
        self.services.gate.enter(self.group.doors, self.interrupted)
        self.correlation_id = int.from_bytes(frame[8:12], "big", signed=True)
        entries, fields, may_append = [], [], False
        for part in self.parts:
            is_individual = part.commit.done is not None
            entries.append(part.entry)
            fields.append((part.offset, part.epoch, final_nul(part.entry[4]) if is_individual else None))
            may_append = may_append or is_individual or bool(part.held.ranges)
        sent = commit_frames.rewritten(frame, self.request.version, entries, fields)
        if may_append:  # when the coordinator has accepted it
            self.services.journal.coming.begin(self, self.services.timers.now())
        self.connection.to_broker_at_once(self.correlation_id, self, sent)

    # The coordinator's answer

    def came(self, frame: memoryview) -> None:
        """See interfaces.AwaitedAnswer."""
        coming = self.services.journal.coming
        if self.is_over:
            coming.end(self, self.services.timers.now())
            return
        self.answer = bytes(frame)
        try:
            self._apply(self._accepted())
        except BaseException:
            self._end()
            raise
        finally:
            coming.end(self, self.services.timers.now())
            self._leave()
        if not self.changed:
            self._finish(NO_ERROR)
            return
        self._appends = list(self.group.appends)
        self._look()
        if not self.is_over:
            self.others.watch(self)

    def lost(self) -> None:
        """See interfaces.AwaitedAnswer."""
        self.services.journal.coming.end(self, self.services.timers.now())
        self._forget_marks()
        self._leave()
        self._end()

    def _accepted(self) -> Sequence[PlannedPart]:
        """The partitions that the coordinator has committed."""
        figures = self.services.figures
        if commit_frames.accepted(self.answer, self.request.version, len(self.parts)):
            for part in self.parts:
                figures.took(NO_ERROR, is_individual=part.commit.done is not None)
            return self.parts
        codes, found = codes_of(self._decoded()), []
        for part in self.parts:
            code = ErrorCode.of(codes.get((part.entry[0], part.place.partition), ErrorCode.UNKNOWN_SERVER_ERROR))
            figures.took(code, is_individual=part.commit.done is not None)
            if code == NO_ERROR:
                found.append(part)
            elif code not in DEFINITE:
                part.held.mark_unknown()
        return found

    def _decoded(self) -> messages.OffsetCommitResponse:
        answer: messages.OffsetCommitResponse
        _, answer = frames.decode_response(self.request.key, self.request.version, memoryview(self.answer)[4:])
        return answer

    def _apply(self, accepted: Sequence[PlannedPart]) -> None:
        audit, changes, changed, told = self.services.audit, [], [], []
        for part in accepted:
            entry, place, held, commit, offset, _, _ = part
            before = held.mark if held.is_mark_known else None
            change = held.accepted(commit, offset, epoch_of(held, entry[2], entry[3], offset))
            if change:
                changes.append(StoredChange(place, held, change, entry[3], self.member_id))
            if change or commit.done is not None:
                changed.append(part)
            if audit is not None:
                told.append(AcceptedCommit(place, held, change, before))
        self.changed = changed
        store(self.services, self.group, changes)
        if audit is not None:
            audit.committed(self.group, self.member_id, told)

    # Stored

    def _look(self) -> None:
        """Go on when all that was on its way for the group is stored, or is not; mostly the last one tells."""
        if self.is_over:
            return
        for append in reversed(self._appends):
            if not append.done:
                connection = self.connection.owner
                append.on_settled(partial(connection.call_soon, self._look), self.services.state_owner)
                return
        for append in self._appends:
            code = outcome_of(append)
            if code != NO_ERROR:
                self._finish(code)
                return
        self._finish(NO_ERROR)

    def overdue(self) -> None:
        """It has waited for its appends for too long; they go on."""
        if not self.is_over:
            self._finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, code: ErrorCode) -> None:
        """Answer, unless the lease has ended: somebody else may be the owner, and have other ranges."""
        if self.services.gate.lease():
            self._answer(code)
        else:
            Task(self._once_leased(code), self._waited, self.connection.owner).start()

    async def _once_leased(self, code: ErrorCode) -> None:
        """Wait for the lease to come back for a bounded time (see OwnedApi)."""
        timers, gate = self.services.timers, self.services.gate
        deadline = timers.now() + HOLD_MAX_S
        while not (self.is_over or gate.lease() or timers.now() >= deadline):
            await gate_change(self.services, deadline)
        if gate.lease():
            self._answer(code)
        else:
            self._refuse()

    def _waited(self, task: Task[None]) -> None:
        if isinstance(task.error, Exception):
            self.connection.owner.failed(task.error)

    # The client's answer

    def _answer(self, code: ErrorCode) -> None:
        if self.is_over:
            return
        self._end()
        if code != NO_ERROR:
            self.answer = self._with_code(code)
        self.connection.answer_at_once(self.answer)

    def _with_code(self, code: ErrorCode) -> bytes:
        """The coordinator's answer with this code in what could not be stored."""
        answer = self._decoded()
        changed = {(part.entry[0], part.place.partition) for part in self.changed}
        for topic in answer.topics or ():
            for entry in topic.partitions or ():
                if (name_or_id(topic), entry.partition_index) in changed:
                    entry.error_code = code
        return bytes(frames.response(self.request.key, self.request.version, self.correlation_id, answer))

    def interrupted(self) -> None:
        """The group is somebody else's, or nobody's: what was to be stored may be stored or not."""
        if self.is_over:
            return
        if self.locks is not None:
            self._forget_marks()
            self._leave()
        self.connection.owner.call_soon(self._refuse)

    def _refuse(self) -> None:
        """Every partition gets 15."""
        if self.is_over:
            return
        self._end()
        response = messages.OffsetCommitResponse
        found: dict[str | bytes, list[messages.OffsetCommitResponse.OffsetCommitResponsePartition]] = {}
        for part in self.parts:
            entry = response.OffsetCommitResponsePartition(
                partition_index=part.place.partition, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            found.setdefault(part.entry[0], []).append(entry)
        topics = [
            response.OffsetCommitResponseTopic(
                name="" if isinstance(topic, bytes) else topic,
                topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
                partitions=entries,
            )
            for topic, entries in found.items()
        ]
        message = response(topics=topics)
        answer = frames.response(self.request.key, self.request.version, self.correlation_id, message)
        self.connection.answer_at_once(bytes(answer))

    def _end(self) -> None:
        self.is_over = True
        self.others.forget(self)
        self.services.gate.leave(self.group.doors, self.interrupted)

    def _leave(self) -> None:
        """Others may have the partitions."""
        locks, self.locks = self.locks, None
        if locks is not None:
            self.services.locks.leave(locks)

    def _forget_marks(self) -> None:
        for part in self.parts:
            part.held.mark_unknown()
