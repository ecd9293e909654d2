"""Acknowledgements, alone or with a ShareFetch: decide, write, apply, then respond (sharegroups/README.md rule 43)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kafka_share_proxy.brokers.topic_leaders import judge
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.reading.far_records import holder_of
from kafka_share_proxy.sharegroups.apis.share_requests import AckBatches, follow_leader
from kafka_share_proxy.sharegroups.model.acknowledging import RELEASE
from kafka_share_proxy.sharegroups.model.coordinator import Change, ShareKey
from kafka_share_proxy.sharegroups.model.partition import Refusal, check_shape
from kafka_share_proxy.sharegroups.model.sessions import SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import Outcome, reported_in_time
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

_Acknowledges: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"


class Acknowledging:
    """Acknowledgements of one request. Once `write` is called they are stored, even if the client disconnects.

    Records in a decided but unwritten change can neither be acquired nor acknowledged.
    """

    def __init__(
        self,
        call: Call[_Acknowledges],
        services: ShareServices,
        batches: Mapping[TopicIdPartition, AckBatches],
        outcome: dict[TopicIdPartition, ErrorCode],
        changes: Sequence[Change],
    ) -> None:
        self._call = call
        self._batches = batches
        self._services = services
        self._outcome = outcome
        self._changes = changes
        self._written: Promise[Outcome] | None = None
        self._begun = services.timers.now()

    def write(self) -> Promise[Outcome]:
        """Append the changes to the journal, once."""
        if self._written is None:
            self._written = self._services.writes.write(self._changes)
            self._begun = self._services.timers.now()
            if self._batches:
                self._written.on_settled(self._count)
        return self._written

    def _count(self) -> None:
        """Count acknowledged records by type, even if no request waits for the outcome."""
        codes = self.write().result()
        refused = {TopicIdPartition(*key[1:]) for key, code in codes.items() if code != ErrorCode.NONE}
        figures = self._services.figures.of(self._call.message.group_id or "")
        for partition, batches in self._batches.items():
            if self._outcome[partition] == ErrorCode.NONE and partition not in refused:
                for batch in batches:
                    figures.acknowledge(*batch)

    @property
    def leave_others_first(self) -> bool:
        """True if the fetch of the same ShareFetch must run before the changes are written.

        A broker starts both together, and has fetched before it knows that the release is stored. Released records are
        therefore delivered after all others. False for records that another proxy keeps, since they are acquired last
        (see `come_first`).
        """
        return holder_of(self._call.connection) == 0 and any(RELEASE in change.kinds for _, change in self._changes)

    @property
    def come_first(self) -> bool:
        """True if the fetch of the same request has to wait until the changes are stored.

        A broker never waits. Here the fetch waits if the unsettled records leave less room in the window than
        MaxRecords; otherwise the window would be delivered in small responses. It also waits for records that another
        proxy keeps, which releases them in the loop iteration in which nothing is left to acquire of them.
        """
        if self.write().done:
            return False
        return holder_of(self._call.connection) != 0 or any(map(self._hinders, self._changes))

    def _hinders(self, change: Change) -> bool:
        key, _ = change
        share, settings = self._services.coordinator.share(key), self._services.coordinator.settings(key.group_id)
        if share is None:
            return True
        request = self._call.message
        max_records = request.max_records if isinstance(request, messages.ShareFetchRequest) else 0
        return share.partition.room(settings.max_record_locks) < max_records

    @property
    def are_reported(self) -> bool:
        return self._written is not None and self._written.done

    async def outcome(self) -> dict[TopicIdPartition, ErrorCode]:
        """Return the outcome of each partition, a retriable error if the append is not confirmed in time."""
        keys = (key for key, _ in self._changes)
        codes = await reported_in_time(self._services.timers, self.write(), keys, self._begun)
        for key, code in codes.items():
            self._outcome[TopicIdPartition(key.topic_id, key.partition)] = code
        return self._outcome


def decide(
    call: Call[_Acknowledges],
    services: ShareServices,
    session: SessionKey,
    batches: Mapping[TopicIdPartition, AckBatches],
    renew_allowed: bool,
) -> Acknowledging:
    """Decide all acknowledgements for one append. An error of one partition does not affect the others."""
    outcome: dict[TopicIdPartition, ErrorCode] = {}
    changes: list[Change] = []
    for partition, acks in batches.items():
        outcome[partition] = _decide(call, services, session, partition, acks, renew_allowed, changes)
    services.clock.not_later_than(services.coordinator.next_lock_deadline())
    return Acknowledging(call, services, batches, outcome, changes)


def _decide(
    call: Call[_Acknowledges],
    services: ShareServices,
    session: SessionKey,
    partition: TopicIdPartition,
    acks: AckBatches,
    renew_allowed: bool,
    changes: list[Change],
) -> ErrorCode:
    """Return the error. NONE if there is nothing to write or if the change was added to `changes`."""
    mistake = check_shape(acks, renew_allowed)
    if mistake is not None:
        return mistake.error
    key = ShareKey(session.group_id, partition.topic_id, partition.partition)
    follow_leader(services, key)
    code = judge(call.connection, services, partition)
    if code != ErrorCode.NONE:
        return code
    share = services.coordinator.share(key)
    if share is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # nothing was ever acquired from it here
    settings, now = services.coordinator.settings(session.group_id), services.timers.now()
    bound = services.options.renewal_bound(session.group_id) if renew_allowed else None
    decided = share.partition.decide_acknowledge(session.member_id, acks, renew_allowed, settings, now, bound)
    if renew_allowed and services.audit is not None:
        services.audit.renewed(key)
    if isinstance(decided, Refusal):
        if decided.by_bound:
            where = f"{partition.topic_id.hex()}-{partition.partition}"
            topic = services.topology.topic_by_id(partition.topic_id)
            if topic is not None:
                where = f"{topic.name}-{partition.partition}"
            services.notes(
                "share-renewal-refused",
                group=session.group_id,
                member=session.member_id,
                partition=where,
                reason=decided.message,
            )
        return decided.error
    if decided.changes:
        changes.append((key, decided))
    return ErrorCode.NONE
