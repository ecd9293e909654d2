"""Topics of the cluster for calls of the application: one Metadata request for each call (Admin.listTopics)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.client_options import ClientOptions
from kafka_share_proxy.consumer.events import BackgroundEvent, BrokerRefused, CallDone, ConsumerError
from kafka_share_proxy.consumer.metadata_requests import NO_LEADER, TRANSIENT_CODES
from kafka_share_proxy.consumer.requests import DueRequests, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

VERSIONS = (12, 13)


class PartitionInfo(NamedTuple):
    """A partition as the cluster describes it (org.apache.kafka.common.PartitionInfo)."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


Topics = Mapping[str, tuple[PartitionInfo, ...]]


@dataclass(slots=True, eq=False)
class _Query:
    call_id: int
    topic: str | None
    """None means all topics."""
    request: UnsentRequest | None = None


class TopicListing:
    """The listings of one consumer."""

    def __init__(self, options: ClientOptions, backoff: RetryBackoff) -> None:
        self._options = options
        self._backoff = backoff
        self._queries: list[_Query] = []

    def query(self, call_id: int, topic: str | None) -> None:
        self._queries.append(_Query(call_id, topic))

    def give_up(self, call_id: int) -> None:
        self._queries = [each for each in self._queries if each.call_id != call_id]

    def poll(self, now: float) -> DueRequests:
        due = [each for each in self._queries if each.request is None]
        if due and not self._backoff.is_ready(now):
            return DueRequests(wake_at=self._backoff.ready_at)
        for each in due:
            each.request = self._request(each.topic)
        return DueRequests(tuple(each.request for each in due if each.request is not None))

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Repeat a request that failed for a passing reason."""
        queries = [each for each in self._queries if each.request is request]
        if not queries:
            return []
        (query,) = queries
        result = self._result(query, outcome)
        if result is None:
            self._backoff.failed(now)
            query.request = None
            return []
        self._backoff.succeeded()
        self._queries.remove(query)
        return [result]

    def _request(self, topic: str | None) -> UnsentRequest:
        message = messages.MetadataRequest
        topics = None if topic is None else [message.MetadataRequestTopic(name=topic)]
        return UnsentRequest(
            sender=self,
            api="Metadata",
            message=message(topics=topics, allow_auto_topic_creation=False),
            versions=VERSIONS,
            timeout_s=self._options.request_timeout_s,
        )

    def _result(self, query: _Query, outcome: Outcome) -> CallDone | None:
        """Return None if the request must be repeated."""
        if isinstance(outcome, RequestFailure):
            if outcome.is_retriable:
                return None
            error = ConsumerError(f"Metadata: {outcome.reason}")
            return CallDone(call_id=query.call_id, error=error)
        response: Any = outcome
        if response.error_code:
            return None
        listed: dict[str, tuple[PartitionInfo, ...]] = {}
        for each in response.topics:
            code = ErrorCode.of(each.error_code)
            if code and query.topic is not None:
                if code in TRANSIENT_CODES:
                    return None
                return CallDone(call_id=query.call_id, error=BrokerRefused("Metadata", code, f"topic {query.topic!r}"))
            if not code and each.name is not None:
                listed[each.name] = _partitions(each)
        return CallDone(call_id=query.call_id, value=dict(sorted(listed.items())))


def _partitions(topic: Any) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(
            topic.name,
            each.partition_index,
            None if each.leader_id == NO_LEADER else each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    )
