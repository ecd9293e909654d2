"""Acknowledgements, alone or with a ShareFetch: decide, write, apply, then respond (sharegroups/README.md rule 43)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kafka_share_proxy.brokers.topic_leaders import JudgedTopics, judge_partition
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.waiting import end_of_iteration, settled_by
from kafka_share_proxy.sharegroups.apis.share_requests import AckBatches, follow_leader
from kafka_share_proxy.sharegroups.model.acknowledging import RELEASE
from kafka_share_proxy.sharegroups.model.coordinator import Change, ShareKey
from kafka_share_proxy.sharegroups.model.partition import Refusal, check_shape
from kafka_share_proxy.sharegroups.model.redelivery import named_delays_mistake
from kafka_share_proxy.sharegroups.model.sessions import SessionKey
from kafka_share_proxy.sharegroups.services import ShareServices
from kafka_share_proxy.sharegroups.state.state_writes import Outcome
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

_Acknowledges: TypeAlias = "messages.ShareFetchRequest | messages.ShareAcknowledgeRequest"
Codes = dict[TopicIdPartition, ErrorCode]


@dataclass(slots=True, eq=False)
class Acknowledging:
    """Acknowledgements of one request. Once `write` is called they are stored, even if the client disconnects.

    Records in a decided but unwritten change can neither be acquired nor acknowledged.
    """

    services: ShareServices
    group_id: str
    batches: Mapping[TopicIdPartition, AckBatches]
    codes: Codes
    """Outcome of each partition, as far as it is known."""
    changes: Sequence[Change]
    started_at: float
    written: Promise[Outcome] | None = None

    @property
    def releases(self) -> bool:
        """True if records are released. Then the fetch of the same ShareFetch must run before the changes are written,
        since a broker has fetched before it knows that the release is stored.
        """
        return any(RELEASE in change.acknowledge_types for _, change in self.changes)

    def write(self) -> Promise[Outcome]:
        """Append the changes to the journal, once."""
        if self.written is None:
            self.written = self.services.writes.write(self.changes)
            self.started_at = self.services.timers.now()
            if self.batches:
                self.written.on_settled(self._count)
        return self.written

    def _count(self) -> None:
        """Count acknowledged records by type, even if no request waits for the outcome."""
        codes = self.write().result()
        refused = {TopicIdPartition(*key[1:]) for key, code in codes.items() if code != NO_ERROR}
        figures = self.services.figures.of(self.group_id)
        for partition, batches in self.batches.items():
            if self.codes[partition] == NO_ERROR and partition not in refused:
                figures.acknowledge(batches)

    async def write_before_fetch(self, max_records: int, *, is_far: bool) -> bool:
        """Write the changes. Wait until they are stored if the fetch of the same request has to come after that.

        Return True if it waited.

        A broker never waits. Here the fetch waits if the unsettled records leave less room in the window than
        MaxRecords, which would be delivered in small responses, and for records that another proxy keeps (`is_far`).
        """
        if self.write().done:
            return False
        if is_far or any(self._hinders(key, max_records) for key, _ in self.changes):
            await self.outcome()
            return True
        await end_of_iteration()  # the broker stores the changes while records are acquired
        return False

    def _hinders(self, key: ShareKey, max_records: int) -> bool:
        share, settings = self.services.coordinator.share(key), self.services.coordinator.settings(key.group_id)
        return share is None or share.partition.room(settings.max_record_locks) < max_records

    async def outcome(self, response_bytes: int = 0) -> Codes:
        """Return the outcome of each partition.

        A retriable error if the append is not confirmed in time. Response memory is reserved for records that wait.
        """
        responses, written = self.services.responses, self.write()
        waits = response_bytes > 0 and not written.done
        reserved = response_bytes if waits and responses.reserve(response_bytes) else 0
        try:
            is_reported = await settled_by(self.services.timers, self.started_at + RESPONSE_MAX_S, written)
        finally:
            responses.release(reserved)
        for key, _ in self.changes:
            code = written.result()[key] if is_reported else ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.codes[TopicIdPartition(key.topic_id, key.partition)] = code
        return self.codes


def decide(
    call: Call[_Acknowledges],
    services: ShareServices,
    session: SessionKey,
    batches: Mapping[TopicIdPartition, AckBatches],
    judged: JudgedTopics,
) -> Acknowledging:
    """Decide all acknowledgements for one append. An error of one partition does not affect the others.

    `judged`: rights and leaders of the topics at this moment.
    """
    codes: Codes = {}
    changes: list[Change] = []
    renew_allowed = call.version >= 2 and call.message.is_renew_ack
    for partition, acks in batches.items():
        topic, code = judged[partition.topic_id]
        if topic is not None and code == NO_ERROR:
            code = judge_partition(topic, partition.partition, session.node_id)
        codes[partition] = _decide(services, session, partition, acks, renew_allowed, code, changes)
    services.clock.not_later_than(services.coordinator.next_lock_deadline())
    return Acknowledging(services, session.group_id, batches, codes, changes, services.timers.now())


def _decide(
    services: ShareServices,
    session: SessionKey,
    partition: TopicIdPartition,
    acks: AckBatches,
    renew_allowed: bool,
    refusal: ErrorCode,
    changes: list[Change],
) -> ErrorCode:
    """Return the error. NONE if there is nothing to write or if the change was added to `changes`.

    `refusal`: the error if this node does not lead the partition or the client may not read it.
    """
    share = services.coordinator.share_of(session.group_id, partition)
    is_elsewhere = share is None or refusal != NO_ERROR or share.node_id != session.node_id
    if named_delays_mistake(acks.delays) or (is_elsewhere and check_shape(acks, renew_allowed)):
        return ErrorCode.INVALID_REQUEST
    if share is not None and is_elsewhere:
        follow_leader(services, share.key)
    if refusal != NO_ERROR:
        return refusal
    if share is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # nothing was ever acquired from it here
    settings, now = services.coordinator.settings(session.group_id), services.timers.now()
    bound = services.options.renewal_bound(session.group_id) if renew_allowed else None
    decided = share.partition.decide_acknowledge(session.member_id, acks, renew_allowed, settings, now, bound)
    if renew_allowed and services.audit is not None:
        services.audit.renewed(share.key)
    if isinstance(decided, Refusal):
        if decided.by_bound:
            _note_refused_renewal(services, session, partition, decided)
        return decided.error
    if decided.changes:
        if acks.delays:
            services.coordinator.queue_of(share).name_delays(decided, acks.delays, now)
        changes.append((share.key, decided))
    return NO_ERROR


def _note_refused_renewal(
    services: ShareServices, session: SessionKey, partition: TopicIdPartition, refusal: Refusal
) -> None:
    topic = services.topology.topic_by_id(partition.topic_id)
    services.notes(
        "share-renewal-refused",
        group=session.group_id,
        member=session.member_id,
        partition=f"{partition.topic_id.hex() if topic is None else topic.name}-{partition.partition}",
        reason=refusal.message,
    )
