"""OffsetCommit (key 8): the broker judges and moves the mark, the ranges are stored behind it.

Versions: all that brokers have; topics by name or, from v10 on, by id. Only commits with a text of ranges, and those of
groups that are known to have ranges, come to the handler.

Behaviour
- The member's own request goes on over its own connection, in its version, with the offset moved over what is done and
  with the user's own metadata. What the broker refuses is passed on and changes nothing.
- A partition whose text cannot be read is refused with 42, one with too many ranges with 12; the others go on.
- While a transaction that may commit a partition is open, individual commits of it get 14 (commits/README.md rule 18).
- Answered when the ranges are stored. Where that fails: 15, for which every client repeats the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.commits.apis.commit_answers import DEFINITE, altered, answer_of, request_of, take_codes
from proxy.commits.apis.commit_requests import commit
from proxy.commits.asked_commits import AskedCommit, kept_metadata
from proxy.commits.audit_events import AcceptedCommit
from proxy.commits.held_state import CommittingGroup
from proxy.commits.locked_partitions import look_at_partitions, with_locks
from proxy.commits.model.partition_commits import CommitPlan, PartitionCommits
from proxy.commits.services import CommitServices
from proxy.commits.storing import StoredChange, store, stored
from proxy.forwarding.ask_and_reply import ask_upstream
from proxy.forwarding.commit_responses import CommitEntry, refused
from proxy.forwarding.declared_api import DeclaredApi, Needs
from proxy.forwarding.interfaces import Call
from proxy.wire import messages
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

KEY = ApiKey.OFFSET_COMMIT


async def handle(call: Call[messages.OffsetCommitRequest], services: CommitServices) -> messages.OffsetCommitResponse:
    """At the owner of the group."""
    found, throttle_time_ms = await commit(call, services, _OffsetCommit)
    return answer_of(call, call.message.topics, found, throttle_time_ms)


class _OffsetCommit:
    """One request, as far as it can be taken."""

    def __init__(
        self, call: Call[messages.OffsetCommitRequest], services: CommitServices, asked: Sequence[AskedCommit]
    ) -> None:
        self.asked = asked
        self.throttle_time_ms = 0
        self._call, self._services = call, services
        self._group_id = call.message.group_id
        self._changed: list[AskedCommit] = []
        self._as_they_are: set[AskedCommit] = set()
        """Plain commits of which the broker alone knows what they come to."""

    async def run(self) -> None:
        """Until each partition has its code. Raises UpstreamLost."""
        by_place = {asked.place: asked for asked in self.asked if asked.place is not None}

        def needs_alone(place: TopicPartition) -> bool:
            held = self._group.of(place)
            return not held.is_mark_known or held.plan(by_place[place].commit).moves

        await with_locks(self._services, self._group_id, by_place.keys(), needs_alone, self._commit)
        if self._changed:
            code = await stored(self._services, self._group)
            for asked in self._changed:
                asked.code = code

    @property
    def _group(self) -> CommittingGroup:
        return self._services.held.group(self._group_id)

    async def _commit(self) -> None:
        """While nobody else moves a mark."""
        group = self._group
        troubles = await look_at_partitions(self._services, self._call.connection, group, self.asked)
        plans = {id(asked): plan for asked in self.asked if (plan := self._plan(group, asked, troubles)) is not None}
        going = [asked for asked in self.asked if id(asked) in plans]
        if going:
            await self._forward(group, going, plans)

    def _plan(
        self, group: CommittingGroup, asked: AskedCommit, troubles: dict[TopicPartition, ErrorCode]
    ) -> CommitPlan | None:
        """What is to be committed; None: it is refused."""
        trouble = None if asked.place is None else troubles.get(asked.place)
        is_open = trouble == ErrorCode.UNSTABLE_OFFSET_COMMIT
        if asked.place is None or (is_open and asked.text is None):
            self._as_they_are.add(asked)
            return CommitPlan(asked.entry.committed_offset, moves=True, ranges=0)
        if trouble is not None:
            reason = "a transaction that may commit the partition is open" if is_open else ""
            asked.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_open else trouble, reason)
            return None
        held = group.of(asked.place)
        plan = held.plan(asked.commit)
        most = self._services.options.ranges_max
        if plan.ranges > max(most, len(held.ranges)):
            reason = f"{plan.ranges} ranges with those that are stored, more than commits.ranges_max ({most})"
            asked.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, reason)
            return None
        return plan

    async def _forward(self, group: CommittingGroup, going: list[AskedCommit], plans: dict[int, CommitPlan]) -> None:
        """The request with what is planned; what the broker accepts is applied."""
        request = request_of(self._call, [(asked, self._entry(group, asked, plans[id(asked)])) for asked in going])
        is_answered = False
        try:
            answer = await ask_upstream(self._call, request)
            take_codes(going, answer)
            is_answered = True
        finally:
            for asked in going:
                if asked.place is not None and not (is_answered and asked.code in {ErrorCode.NONE, *DEFINITE}):
                    group.of(asked.place).mark_unknown()
        self.throttle_time_ms = answer.throttle_time_ms
        self._apply(group, going, plans)

    def _entry(self, group: CommittingGroup, asked: AskedCommit, plan: CommitPlan) -> CommitEntry:
        """The partition as it goes to the broker."""
        epoch = self._epoch(group, asked, plan.offset)
        entry = altered(asked.entry, committed_offset=plan.offset, committed_metadata=kept_metadata(asked))
        entry.committed_leader_epoch = epoch
        return entry

    def _epoch(self, group: CommittingGroup, asked: AskedCommit, offset: int) -> int:
        held = None if asked.place is None else group.of(asked.place)
        return epoch_of(held, asked.entry.committed_offset, asked.entry.committed_leader_epoch, offset)

    def _apply(self, group: CommittingGroup, going: list[AskedCommit], plans: dict[int, CommitPlan]) -> None:
        changes, before = [], []
        for asked in going:
            if asked.place is None or asked.code != ErrorCode.NONE or asked in self._as_they_are:
                continue
            held = group.of(asked.place)
            before.append(held.mark if held.is_mark_known else None)
            offset = plans[id(asked)].offset
            change = held.accepted(asked.commit, offset, self._epoch(group, asked, offset))
            epoch, member_id = asked.entry.committed_leader_epoch, self._call.message.member_id
            changes.append(StoredChange(asked.place, held, change, epoch, member_id))
            if change or asked.text is not None:
                self._changed.append(asked)
        store(self._services, group, changes)
        if self._services.audit is not None:
            accepted = [AcceptedCommit(c.place, c.held, c.change, b) for c, b in zip(changes, before, strict=True)]
            self._services.audit.committed(group, self._call.message.member_id, accepted)


def epoch_of(held: PartitionCommits | None, asked_offset: int, asked_epoch: int, offset: int) -> int:
    """The leader epoch that belongs to the offset that is committed in place of the member's, where that is known: a
    consumer would see a truncated log in a wrong one (KIP-320)."""
    if offset == asked_offset:
        return asked_epoch
    return held.mark_epoch if held is not None and held.is_mark_known and held.mark == offset else -1


async def _away(
    call: Call[messages.OffsetCommitRequest], code: ErrorCode, _reason: str
) -> messages.OffsetCommitResponse:
    return refused(call, call.message.topics, code)


API = DeclaredApi(key=KEY, handle=handle, needs=Needs.OWNER, away=_away, asks_again=True)
