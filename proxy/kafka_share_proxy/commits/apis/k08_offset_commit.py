"""OffsetCommit (key 8): the broker judges it and stores the committed offset, the proxy stores the ranges above it.

Rules: commits/README.md 6 to 18 and 26 to 33. Versions: all that brokers have, with topics by name or, from v10 on, by
id. The handler receives only commits with a ranges text and commits of groups that are known to have ranges.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.commits.accepted_commits import PlannedPart, apply, epoch_of
from kafka_share_proxy.commits.apis.commit_requests import commit, refused_without_lease
from kafka_share_proxy.commits.apis.commit_responses import (
    COMMIT_HOLD_S,
    DEFINITE,
    copy_with,
    request_of,
    response_of,
    set_codes,
)
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.locked_partitions import load_partitions, store_first, with_locks
from kafka_share_proxy.commits.model.partition_commits import CommitPlan
from kafka_share_proxy.commits.model.topic_records import TextPlan
from kafka_share_proxy.commits.requested_commits import RequestedCommit, kept_metadata, room_for_ranges
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import StoredChange, outcome_of_appends, store
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
ATTEMPTS_MAX = 3
"""One attempt more with verified topic ids, and one without ranges in the metadata."""

NO_TEXT = TextPlan()


async def handle(call: Call[messages.OffsetCommitRequest], services: CommitServices) -> messages.OffsetCommitResponse:
    commits, throttle_time_ms = await commit(call, services, _OffsetCommit)
    return response_of(call, call.message.topics, commits, throttle_time_ms)


class _OffsetCommit:
    def __init__(
        self, call: Call[messages.OffsetCommitRequest], services: CommitServices, requested: Sequence[RequestedCommit]
    ) -> None:
        self.requested = requested
        self.throttle_time_ms = 0
        self._call, self._services = call, services
        self._group_id = call.message.group_id
        self._changed: list[RequestedCommit] = []
        self._has_verified = False
        """Once after the request was received is enough."""
        self._unchanged: set[RequestedCommit] = set()
        """Plain commits forwarded unchanged."""
        self._texts: dict[RequestedCommit, TextPlan] = {}
        self._too_long: set[RequestedCommit] = set()
        """Commits whose metadata with ranges was refused."""

    async def run(self) -> None:
        by_partition = {
            requested.topic_partition: requested
            for requested in self.requested
            if requested.topic_partition is not None
        }

        def needs_exclusive(partition: TopicPartition) -> bool:
            state = self._group.state_of(partition)
            if state.records is not None or not state.is_committed_known:
                return True
            return state.plan(by_partition[partition].commit).moves

        for _ in range(ATTEMPTS_MAX):
            if await with_locks(self._services, self._group_id, by_partition.keys(), needs_exclusive, self._commit):
                break
        if self._changed:
            code = await outcome_of_appends(self._services, self._group)
            for requested in self._changed:
                requested.code = code

    @property
    def _group(self) -> CommittingGroup:
        return self._services.held.group(self._group_id)

    async def _commit(self) -> bool:
        """False if locks and plans have to be redone: a topic was recreated, or metadata was too long."""
        group = self._group
        errors = await load_partitions(self._services, self._call.connection, group, self.requested)
        plans = {
            id(requested): plan
            for requested in self.requested
            if (plan := self._plan(group, requested, errors)) is not None
        }
        forwarded = [requested for requested in self.requested if id(requested) in plans]
        if not await self._is_verified(
            [requested for requested in forwarded if _advances(requested, plans[id(requested)])]
        ):
            self.requested = [requested for requested in self.requested if requested.code is None]
            return False
        forwarded = await self._with_texts(group, forwarded)
        if forwarded:
            await self._forward(group, forwarded, plans)
        return self._fits_metadata(forwarded)

    async def _with_texts(self, group: CommittingGroup, forwarded: list[RequestedCommit]) -> list[RequestedCommit]:
        """Plan the metadata, and store what it will not hold. Return the commits that can be forwarded then."""
        changes = []
        for requested in forwarded:
            partition = requested.topic_partition
            self._texts.pop(requested, None)
            if partition is None or requested in self._unchanged:
                continue
            state = group.state_of(partition)
            text = state.plan_text(requested.commit, self._room(requested))
            if text is None:
                continue
            self._texts[requested] = text
            if text.spills or text.rewinds:
                change = state.store_all() if text.spills else state.delete_records()
                changes.append(StoredChange(partition, state, change))
        if not changes:
            return forwarded
        errors = await store_first(self._services, group, changes)
        for requested in forwarded:
            if requested.topic_partition in errors:
                requested.refuse(errors[requested.topic_partition])
        return [requested for requested in forwarded if requested.code is None]

    def _room(self, requested: RequestedCommit) -> int:
        if requested in self._too_long:
            return 0
        metadata = requested.entry.committed_metadata
        return room_for_ranges(metadata, requested.text, self._services.limit.characters)

    def _fits_metadata(self, forwarded: Sequence[RequestedCommit]) -> bool:
        """Return False if a broker refused metadata because of ranges (commits/README.md rule 29)."""
        refused = [
            requested
            for requested in forwarded
            if requested.code == ErrorCode.OFFSET_METADATA_TOO_LARGE and self._text(requested).ranges
        ]
        for requested in refused:
            sent = kept_metadata(requested, self._text(requested).ranges) or ""
            self._services.limit.refused(self._services.base, len(sent))
            requested.code = None
        self._too_long.update(refused)
        self.requested = refused or self.requested
        return not refused

    def _text(self, requested: RequestedCommit) -> TextPlan:
        return self._texts.get(requested, NO_TEXT)

    async def _is_verified(self, inheriting: Sequence[RequestedCommit]) -> bool:
        if self._has_verified:
            return True
        self._has_verified = bool(inheriting)
        return await verify_topic_ids(self._call, self._services, self.requested, inheriting)

    def _plan(
        self, group: CommittingGroup, requested: RequestedCommit, errors: dict[TopicPartition, ErrorCode]
    ) -> CommitPlan | None:
        """Return the plan for one partition, or None if it was refused."""
        error = None if requested.topic_partition is None else errors.get(requested.topic_partition)
        is_in_transaction = error == ErrorCode.UNSTABLE_OFFSET_COMMIT
        if requested.topic_partition is None or (is_in_transaction and requested.text is None):
            self._unchanged.add(requested)
            return CommitPlan(requested.entry.committed_offset, moves=True, ranges=0)
        if error is not None:
            reason = "a transaction that may commit the partition is open" if is_in_transaction else ""
            requested.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_in_transaction else error, reason)
            return None
        state = group.state_of(requested.topic_partition)
        plan = state.plan(requested.commit)
        ranges_max = self._services.options.ranges_max
        if plan.ranges > max(ranges_max, len(state.ranges)):
            reason = f"{plan.ranges} ranges with those that are stored, more than commits.ranges_max ({ranges_max})"
            requested.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, reason)
            return None
        return plan

    async def _forward(
        self, group: CommittingGroup, forwarded: list[RequestedCommit], plans: dict[int, CommitPlan]
    ) -> None:
        request = request_of(
            self._call, [(requested, self._entry(group, requested, plans[id(requested)])) for requested in forwarded]
        )
        if refused_without_lease(self._services, forwarded):
            self._restore(group, forwarded)
            return
        has_response = False
        try:
            response = await send_upstream(self._call, request)
            set_codes(forwarded, response)
            has_response = True
        finally:
            for requested in forwarded:
                if requested.topic_partition is not None and not (
                    has_response and requested.code in {ErrorCode.NONE, *DEFINITE}
                ):
                    group.state_of(requested.topic_partition).forget_committed()
        self.throttle_time_ms = response.throttle_time_ms
        self._apply(group, forwarded, plans)
        self._restore(group, forwarded)

    def _restore(self, group: CommittingGroup, forwarded: Sequence[RequestedCommit]) -> None:
        """Store the records again that a refused rewind has deleted."""
        refused = [
            (requested.topic_partition, group.state_of(requested.topic_partition))
            for requested in forwarded
            if requested.topic_partition is not None and requested.code and self._text(requested).rewinds
        ]
        store(
            self._services, group, [StoredChange(partition, state, state.store_all()) for partition, state in refused]
        )

    def _entry(self, group: CommittingGroup, requested: RequestedCommit, plan: CommitPlan) -> CommitEntry:
        epoch = self._epoch(group, requested, plan.offset)
        metadata = kept_metadata(requested, self._text(requested).ranges)
        entry = copy_with(requested.entry, committed_offset=plan.offset, committed_metadata=metadata)
        entry.committed_leader_epoch = epoch
        return entry

    def _epoch(self, group: CommittingGroup, requested: RequestedCommit, offset: int) -> int:
        state = None if requested.topic_partition is None else group.state_of(requested.topic_partition)
        return epoch_of(state, requested.entry.committed_offset, requested.entry.committed_leader_epoch, offset)

    def _apply(self, group: CommittingGroup, forwarded: list[RequestedCommit], plans: dict[int, CommitPlan]) -> None:
        accepted = [
            self._part(group, requested, requested.topic_partition, plans[id(requested)])
            for requested in forwarded
            if requested.topic_partition is not None
            and requested.code == ErrorCode.NONE
            and requested not in self._unchanged
        ]
        changed = {
            part.topic_partition for part in apply(self._services, group, self._call.message.member_id, accepted)
        }
        self._changed += [requested for requested in forwarded if requested.topic_partition in changed]

    def _part(
        self, group: CommittingGroup, requested: RequestedCommit, partition: TopicPartition, plan: CommitPlan
    ) -> PlannedPart:
        sent = requested.entry
        fields = (sent.committed_offset, sent.committed_leader_epoch, sent.committed_metadata)
        entry = CommittedEntry(partition.topic, partition.partition, *fields, 0, 0, 0)
        epoch = self._epoch(group, requested, plan.offset)
        state, text = group.state_of(partition), self._texts.get(requested)
        return PlannedPart(entry, partition, state, requested.commit, plan.offset, plan.moves, epoch, text)


def _advances(requested: RequestedCommit, plan: CommitPlan) -> bool:
    return plan.offset > requested.entry.committed_offset


async def _respond_unavailable(
    call: Call[messages.OffsetCommitRequest], code: ErrorCode, _reason: str
) -> messages.OffsetCommitResponse:
    return refused(call, call.message.topics, code)


API = DeclaredApi(
    key=KEY,
    handle=handle,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    is_repeated=True,
    hold_s=COMMIT_HOLD_S,
)
