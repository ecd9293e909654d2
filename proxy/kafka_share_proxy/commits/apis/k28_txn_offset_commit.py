"""TxnOffsetCommit (key 28): its metadata carries the ranges, which take effect when the coordinator commits.

Rules: commits/README.md 6, 12, 14, 17 and 18. Versions: all that brokers have. The handler receives only commits with a
ranges text and commits of groups that are known to have ranges. The coordinator keeps them apart until EndTxn
(KIP-447), so that an abort discards them and nothing has to be undone here.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.commits.apis.commit_requests import commit, refused_without_lease
from kafka_share_proxy.commits.apis.commit_responses import (
    COMMIT_HOLD_S,
    copy_with,
    request_of,
    response_of,
    set_codes,
)
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.locked_partitions import load_partitions, store_first, with_locks
from kafka_share_proxy.commits.requested_commits import RequestedCommit, kept_metadata
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.commits.storing import StoredChange
from kafka_share_proxy.commits.topic_ids import verify_topic_ids
from kafka_share_proxy.forwarding.dispatch.declared_api import DeclaredApi, Needs
from kafka_share_proxy.forwarding.served.commit_responses import CommitEntry, refused
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import send_upstream
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

KEY = ApiKey.TXN_OFFSET_COMMIT


async def handle(
    call: Call[messages.TxnOffsetCommitRequest], services: CommitServices
) -> messages.TxnOffsetCommitResponse:
    commits, throttle_time_ms = await commit(call, services, _TxnOffsetCommit)
    return response_of(call, call.message.topics, commits, throttle_time_ms)


class _TxnOffsetCommit:
    def __init__(
        self,
        call: Call[messages.TxnOffsetCommitRequest],
        services: CommitServices,
        requested: Sequence[RequestedCommit],
    ) -> None:
        self.requested = requested
        self.throttle_time_ms = 0
        self._call, self._services = call, services
        self._group_id = call.message.group_id
        self._producer = (call.message.producer_id, call.message.producer_epoch)

    async def run(self) -> None:
        partitions = [
            requested.topic_partition for requested in self.requested if requested.topic_partition is not None
        ]
        await with_locks(self._services, self._group_id, partitions, lambda _: True, self._commit)

    async def _commit(self) -> None:
        """Handle the request while it alone holds the locks of its partitions."""
        group = self._services.held.group(self._group_id)
        errors = await load_partitions(self._services, self._call.connection, group, self.requested)
        inheriting = [requested for requested in self.requested if self._inherits(group, requested)]
        if not await verify_topic_ids(self._call, self._services, self.requested, inheriting):
            self.requested = [requested for requested in self.requested if requested.code is None]
            errors = await load_partitions(self._services, self._call.connection, group, self.requested)
        errors |= await self._stored_ranges(group, errors)
        entries = [
            (requested, entry)
            for requested in self.requested
            if (entry := self._entry(group, requested, errors)) is not None
        ]
        if entries:
            await self._forward(group, entries)

    async def _stored_ranges(
        self, group: CommittingGroup, errors: dict[TopicPartition, ErrorCode]
    ) -> dict[TopicPartition, ErrorCode]:
        """Store the ranges that the transaction's metadata would replace. Return the errors."""
        partitions = [
            requested.topic_partition
            for requested in self.requested
            if requested.topic_partition is not None and requested.topic_partition not in errors
        ]
        changes = [
            StoredChange(partition, state := group.state_of(partition), state.store_all()) for partition in partitions
        ]
        return await store_first(self._services, group, changes)

    def _inherits(self, group: CommittingGroup, requested: RequestedCommit) -> bool:
        """True if more is committed than the producer sent."""
        if requested.topic_partition is None:
            return False
        state = group.state_of(requested.topic_partition)
        offset, _ = state.in_transaction(requested.commit, self._producer)
        return offset > requested.entry.committed_offset or (
            requested.text is not None and (bool(state.ranges) or state.transaction is not None)
        )

    def _entry(
        self, group: CommittingGroup, requested: RequestedCommit, errors: dict[TopicPartition, ErrorCode]
    ) -> CommitEntry | None:
        if requested.topic_partition is None:
            return requested.entry
        error = errors.get(requested.topic_partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if error != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            requested.refuse(error)
            return None
        state = group.state_of(requested.topic_partition)
        if requested.topic_partition in errors and requested.text is not None:
            code = state.next_to_open(self._producer[0], self._services.timers.now())
            if code != ErrorCode.NONE:
                requested.refuse(
                    code, "another transaction of the partition is open, or one that another proxy saw begin"
                )
                return None
        offset, ranges = state.in_transaction(requested.commit, self._producer)
        ranges_max = self._services.options.ranges_max
        if requested.text is not None and len(ranges) > ranges_max:
            reason = f"{len(ranges)} ranges with those that are stored, more than commits.ranges_max ({ranges_max})"
            requested.refuse(ErrorCode.OFFSET_METADATA_TOO_LARGE, reason)
            return None
        entry = copy_with(requested.entry, committed_offset=offset)
        if offset != requested.entry.committed_offset:
            entry.committed_leader_epoch = -1
        if requested.text is not None:
            entry.committed_metadata = kept_metadata(requested, ranges)
        return entry

    async def _forward(self, group: CommittingGroup, entries: list[tuple[RequestedCommit, CommitEntry]]) -> None:
        forwarded = [requested for requested, _ in entries]
        if refused_without_lease(self._services, forwarded):
            return
        try:
            response = await send_upstream(self._call, request_of(self._call, entries))
            set_codes(forwarded, response)
            self.throttle_time_ms = response.throttle_time_ms
        finally:
            for requested in forwarded:
                if requested.topic_partition is not None and requested.code == ErrorCode.NONE:
                    group.state_of(requested.topic_partition).committed_in_transaction(requested.commit, self._producer)
                elif requested.topic_partition is not None:
                    group.state_of(requested.topic_partition).forget_committed()


async def _respond_unavailable(
    call: Call[messages.TxnOffsetCommitRequest], code: ErrorCode, _reason: str
) -> messages.TxnOffsetCommitResponse:
    return refused(call, call.message.topics, code)


API = DeclaredApi(
    key=KEY,
    handle=handle,
    needs=Needs.OWNER,
    respond_unavailable=_respond_unavailable,
    is_repeated=True,
    hold_s=COMMIT_HOLD_S,
)
