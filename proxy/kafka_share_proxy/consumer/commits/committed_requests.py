"""OffsetFetch: the committed offsets of one group.

Requires stable offsets (KIP-447): an offset that an open transaction may still abort is never returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.consumer.events import BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity
from kafka_share_proxy.consumer.groups.coordinator_requests import COORDINATOR_MOVED, CoordinatorRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata, Partitions, by_topic
from kafka_share_proxy.consumer.requests import DueRequests, Lane, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.troubles import TroubleKind, Troubles
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

VERSIONS = (8, 9)
NOTHING_COMMITTED = -1
SUBJECT = ("OffsetFetch", None)
PENDING_ADVICE = "A transaction that commits these offsets is open: check its producer"

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        *COORDINATOR_MOVED,
    }
)

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]
Deliver = Callable[[Committed | ConsumerError], list[BackgroundEvent]]
"""Receives offsets by partition (None if nothing is committed), or the final error."""


@dataclass(slots=True)
class _Query:
    missing: set[TopicPartition]
    deliver: Deliver
    call_id: int | None = None
    """None for a query of the consumer itself."""
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)


class CommittedRequests:
    """Queries of committed offsets, combined into one OffsetFetch at a time."""

    def __init__(
        self,
        options: ConsumerOptions,
        coordinator: CoordinatorRequests,
        backoff: RetryBackoff,
        identity: Callable[[], MemberIdentity],
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self._options = options
        self._coordinator = coordinator
        self._backoff = backoff
        self._identity = identity
        self._queries: list[_Query] = []
        self._in_flight: UnsentRequest | None = None

    def query(self, partitions: Partitions, deliver: Deliver, call_id: int | None = None) -> None:
        """Query committed offsets. `deliver` is called once, unless the call is given up."""
        self._queries.append(_Query(set(partitions), deliver, call_id))

    def give_up(self, call_id: int) -> None:
        self._queries = [each for each in self._queries if each.call_id != call_id]

    def poll(self, now: float) -> DueRequests:
        partitions = {each for query in self._queries for each in query.missing}
        if self._in_flight is not None or not partitions:
            return DueRequests()
        if not self._backoff.is_ready(now):
            return DueRequests(wake_at=self._backoff.ready_at)
        node_id = self._coordinator.find(now, "OffsetFetch")
        if node_id is None:
            return DueRequests()
        self._in_flight = UnsentRequest(
            sender=self,
            api="OffsetFetch",
            message=self._message(partitions),
            versions=VERSIONS,
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            lane=Lane.COORDINATOR,
        )
        return DueRequests((self._in_flight,), math.inf)

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if request is not self._in_flight:
            return []
        self._in_flight = None
        if isinstance(outcome, RequestFailure):
            if not outcome.is_retriable:
                self._backoff.failed(now)
                return self.fail(ConsumerError(f"OffsetFetch: {outcome.reason}"))
            self._coordinator.check(outcome, now)
            self._backoff.failed(now)
            return []
        response: Any = outcome
        (group,) = response.groups
        code = ErrorCode.of(group.error_code)
        if code:
            return self._refused(code, now)
        return self._read_group(group, now)

    def _message(self, partitions: set[TopicPartition]) -> Any:
        message, identity = messages.OffsetFetchRequest, self._identity()
        topics = [
            message.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]
        is_member = self._options.group_protocol == "consumer" and identity.generation > 0
        group = message.OffsetFetchRequestGroup(
            group_id=self._options.group,
            member_id=identity.member_id if is_member else None,
            member_epoch=identity.generation if is_member else -1,
            topics=topics,
        )
        return message(groups=[group], require_stable=True)

    def _read_group(self, group: Any, now: float) -> list[BackgroundEvent]:
        offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
        refused: BrokerRefused | None = None
        again = False
        for topic in group.topics:
            for each in topic.partitions:
                partition, code = TopicPartition(topic.name, each.partition_index), ErrorCode.of(each.error_code)
                if code in RETRIABLE:
                    again = True
                    self._report(f"OffsetFetch of {partition}: {code.name}", code)
                elif code:
                    refused = BrokerRefused("OffsetFetch", code, str(partition))
                elif each.committed_offset == NOTHING_COMMITTED:
                    offsets[partition] = None
                else:
                    offsets[partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        if again or refused:
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        return self.fail(refused) if refused else self._hand_out(offsets)

    def _hand_out(self, offsets: Committed) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        for query in list(self._queries):
            responded = query.missing & offsets.keys()
            query.missing -= responded
            query.offsets.update({each: offsets[each] for each in responded})
            if not query.missing:
                self._queries.remove(query)
                events += query.deliver(query.offsets)
        return events

    def _refused(self, code: ErrorCode, now: float) -> list[BackgroundEvent]:
        self._coordinator.check(code, now)
        self._backoff.failed(now)
        if code in RETRIABLE or code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._report(f"OffsetFetch of group {self._options.group!r}: {code.name}", code)
            return []
        return self.fail(BrokerRefused("OffsetFetch", code, f"group {self._options.group_id}"))

    def _report(self, text: str, code: ErrorCode) -> None:
        advice = PENDING_ADVICE if code is ErrorCode.UNSTABLE_OFFSET_COMMIT else ""
        self._troubles.report(TroubleKind.REQUEST, SUBJECT, text, advice)

    def fail(self, error: ConsumerError) -> list[BackgroundEvent]:
        """Fail all queries."""
        queries, self._queries = self._queries, []
        return [event for query in queries for event in query.deliver(error)]
