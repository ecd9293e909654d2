"""OffsetCommit (key 8): the broker judges it and stores the committed offset, the proxy stores the ranges above it.

Versions: all that brokers have, with topics by name or, from v10 on, by id. The handler receives only commits with a
ranges text and commits of groups that are known to have ranges.

Behaviour
- The member's own request is forwarded over its own connection, in its version, with the offset moved over finished
  records and with the user's own metadata. An error of the broker is passed on and changes nothing.
- A partition whose text cannot be parsed is refused with 42, one with too many ranges with 12. The others are
  forwarded.
- While a transaction that may commit a partition is open, individual commits of it get 14 (commits/README.md rule 18).
- The response is sent when the ranges are stored. If storing fails the code is 15, for which every client retries.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.commits.accepted_commits import PlannedPart, apply, epoch_of
from kafka_share_proxy.commits.apis.commit_requests import commit
from kafka_share_proxy.commits.apis.commit_responses import DEFINITE, altered, request_of, response_of, take_codes
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.locked_partitions import look_at_partitions, with_locks
from kafka_share_proxy.commits.model.partition_commits import CommitPlan
from kafka_share_proxy.commits.requested_commits import RequestedCommit, kept_metadata
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import stored
from kafka_share_proxy.commits.topic_ids import verify_topic_ids
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.commit_responses import CommitEntry, refused
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

KEY = ApiKey.OFFSET_COMMIT
ATTEMPTS_MAX = 2
"""The second attempt uses verified topic ids."""


async def handle(call: Call[messages.OffsetCommitRequest], services: CommitServices) -> messages.OffsetCommitResponse:
    """Handle the request at the owner of the group."""
    found, throttle_time_ms = await commit(call, services, _OffsetCommit)
    return response_of(call, call.message.topics, found, throttle_time_ms)


class _OffsetCommit:
    """One request, with the partitions that were not refused."""

    def __init__(
        self, call: Call[messages.OffsetCommitRequest], services: CommitServices, asked: Sequence[RequestedCommit]
    ) -> None:
        self.asked = asked
        self.throttle_time_ms = 0
        self._call, self._services = call, services
        self._group_id = call.message.group_id
        self._changed: list[RequestedCommit] = []
        self._has_verified = False
        """True once topic ids were verified after the request was received. Once is enough."""
        self._as_they_are: set[RequestedCommit] = set()
        """Plain commits that are forwarded unchanged, because only the broker knows their effect."""

    async def run(self) -> None:
        """Run until each partition has its error code. Raises UpstreamLost."""
        by_place = {asked.place: asked for asked in self.asked if asked.place is not None}

        def needs_alone(place: TopicPartition) -> bool:
            held = self._group.of(place)
            return not held.is_committed_known or held.plan(by_place[place].commit).moves

        for _ in range(ATTEMPTS_MAX):
            if await with_locks(self._services, self._group_id, by_place.keys(), needs_alone, self._commit):
                break
        if self._changed:
            code = await stored(self._services, self._group)
            for asked in self._changed:
                asked.code = code

    @property
    def _group(self) -> CommittingGroup:
        return self._services.held.group(self._group_id)

    async def _commit(self) -> bool:
        """Plan and forward under locks. Return False if a topic was recreated: locks and plans have to be redone."""
        group = self._group
        troubles = await look_at_partitions(self._services, self._call.connection, group, self.asked)
        plans = {id(asked): plan for asked in self.asked if (plan := self._plan(group, asked, troubles)) is not None}
        going = [asked for asked in self.asked if id(asked) in plans]
        if not await self._is_verified([asked for asked in going if _inherits(asked, plans[id(asked)])]):
            self.asked = [asked for asked in self.asked if asked.code is None]
            return False
        if going:
            await self._forward(group, going, plans)
        return True

    async def _is_verified(self, inheriting: Sequence[RequestedCommit]) -> bool:
        """Return True if the topics of these commits have the ids that the plans were made with."""
        if self._has_verified:
            return True
        self._has_verified = bool(inheriting)
        return await verify_topic_ids(self._call, self._services, self.asked, inheriting)

    def _plan(
        self, group: CommittingGroup, asked: RequestedCommit, troubles: dict[TopicPartition, ErrorCode]
    ) -> CommitPlan | None:
        """Return the plan of one partition. None if it was refused."""
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

    async def _forward(
        self, group: CommittingGroup, going: list[RequestedCommit], plans: dict[int, CommitPlan]
    ) -> None:
        """Send the planned request, and apply what the broker accepts."""
        request = request_of(self._call, [(asked, self._entry(group, asked, plans[id(asked)])) for asked in going])
        has_response = False
        try:
            response = await send_upstream(self._call, request)
            take_codes(going, response)
            has_response = True
        finally:
            for asked in going:
                if asked.place is not None and not (has_response and asked.code in {ErrorCode.NONE, *DEFINITE}):
                    group.of(asked.place).forget_committed()
        self.throttle_time_ms = response.throttle_time_ms
        self._apply(group, going, plans)

    def _entry(self, group: CommittingGroup, asked: RequestedCommit, plan: CommitPlan) -> CommitEntry:
        """Return the partition's entry for the request to the broker."""
        epoch = self._epoch(group, asked, plan.offset)
        entry = altered(asked.entry, committed_offset=plan.offset, committed_metadata=kept_metadata(asked))
        entry.committed_leader_epoch = epoch
        return entry

    def _epoch(self, group: CommittingGroup, asked: RequestedCommit, offset: int) -> int:
        held = None if asked.place is None else group.of(asked.place)
        return epoch_of(held, asked.entry.committed_offset, asked.entry.committed_leader_epoch, offset)

    def _apply(self, group: CommittingGroup, going: list[RequestedCommit], plans: dict[int, CommitPlan]) -> None:
        accepted = [
            self._part(group, asked, asked.place, plans[id(asked)])
            for asked in going
            if asked.place is not None and asked.code == ErrorCode.NONE and asked not in self._as_they_are
        ]
        changed = {part.place for part in apply(self._services, group, self._call.message.member_id, accepted)}
        self._changed += [asked for asked in going if asked.place in changed]

    def _part(
        self, group: CommittingGroup, asked: RequestedCommit, place: TopicPartition, plan: CommitPlan
    ) -> PlannedPart:
        sent = asked.entry
        fields = (sent.committed_offset, sent.committed_leader_epoch, sent.committed_metadata)
        entry = CommittedEntry(place.topic, place.partition, *fields, 0, 0, 0)
        epoch = self._epoch(group, asked, plan.offset)
        return PlannedPart(entry, place, group.of(place), asked.commit, plan.offset, plan.moves, epoch)


def _inherits(asked: RequestedCommit, plan: CommitPlan) -> bool:
    """Return True if more is committed than the client sent."""
    return plan.offset > asked.entry.committed_offset


async def _away(
    call: Call[messages.OffsetCommitRequest], code: ErrorCode, _reason: str
) -> messages.OffsetCommitResponse:
    return refused(call, call.message.topics, code)


API = DeclaredApi(key=KEY, handle=handle, needs=Needs.OWNER, away=_away, is_repeated=True)
