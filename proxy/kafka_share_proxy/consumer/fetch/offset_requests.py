"""ListOffsets and OffsetForLeaderEpoch: offsets by timestamp, the reset policy, and detection of truncated logs.

Source: OffsetsRequestManager, OffsetFetcherUtils, KIP-320.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from kafka_share_proxy.consumer.fetch.positions import Positions, PositionState
from kafka_share_proxy.consumer.metadata_requests import NO_EPOCH, NO_LEADER, LeaderAndEpoch, MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import by_topic
from kafka_share_proxy.consumer.requests import DueRequests, Outcome, RequestFailure, RetryBackoff, UnsentRequest
from kafka_share_proxy.consumer.troubles import TroubleKind, Troubles
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

LIST_VERSIONS = (7, 9)
"""The largest timestamp needs 7 (KIP-734)."""
EPOCH_VERSIONS = (4, 4)
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
CONSUMER_REPLICA = -1
NOT_FOUND = -1

STALE_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which the current leader is requested."""


class FoundOffset(NamedTuple):
    """An offset in the ListOffsets response."""

    offset: int
    """-1 if no record has that timestamp or a later one."""
    timestamp: int
    leader_epoch: int


Found = Mapping[TopicPartition, FoundOffset]
Deliver = Callable[[Found | ConsumerError], list[BackgroundEvent]]


class NoOffsetForPartition(ConsumerError):
    """A partition has no valid position, and the reset policy is `none`."""

    def __init__(self, partition: TopicPartition, reason: str, moves: int) -> None:
        self.partition = partition
        self.moves = moves
        """`Position.moves` at the time of the error. Another value: a seek has set a position since then."""
        super().__init__(f"{partition}: {reason}, and auto.offset.reset is none; seek")


class LogTruncated(ConsumerError):
    """The log was truncated below the position, and the reset policy is `none`."""


@dataclass(slots=True, eq=False)
class _Query:
    missing: dict[TopicPartition, int]
    deliver: Deliver
    call_id: int | None = None
    """None for a query of the consumer itself."""
    results: dict[TopicPartition, FoundOffset] = field(default_factory=dict)


class OffsetRequests:
    """The ListOffsets of one consumer: for its application, and for start positions."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: MetadataRequests,
        positions: Positions,
        backoff: RetryBackoff,
        troubles: Troubles | None = None,
    ) -> None:
        self._troubles = troubles or Troubles()
        self._options = options
        self._metadata = metadata
        self._positions = positions
        self._backoff = backoff
        self._queries: list[_Query] = []
        self._timestamps: dict[TopicPartition, int] = {}
        """Requested timestamps by partition. A request may contain a partition only once."""

    # Requests of other components

    def query(self, timestamps: Mapping[TopicPartition, int], deliver: Deliver, call_id: int | None = None) -> None:
        """Query the offsets of these timestamps. `deliver` is called once, with the result."""
        self._queries.append(_Query(dict(timestamps), deliver, call_id))

    def give_up(self, call_id: int) -> set[str]:
        """Forget the query of a call. Return the topics that no other query needs."""
        dropped = [each for each in self._queries if each.call_id == call_id]
        self._queries = [each for each in self._queries if each.call_id != call_id]
        other_topics = {partition.topic for each in self._queries for partition in each.missing}
        return {partition.topic for each in dropped for partition in each.missing} - other_topics

    def fail(self, error: ConsumerError, about: TopicPartition | None = None) -> list[BackgroundEvent]:
        """Fail the queries about a partition, or all queries if `about` is None."""
        failed = [each for each in self._queries if about is None or about in each.missing]
        self._queries = [each for each in self._queries if each not in failed]
        return [event for query in failed for event in query.deliver(error)]

    def reset(
        self, partitions: Iterable[TopicPartition], reason: str = "nothing is committed"
    ) -> list[BackgroundEvent]:
        """Apply the reset policy. With `none` return an error with the reason."""
        events: list[BackgroundEvent] = []
        for each in partitions:
            if self._options.auto_offset_reset != "none":
                self._positions.reset(each)
                continue
            position = self._positions.get(each)
            error = NoOffsetForPartition(each, reason, -1 if position is None else position.moves)
            events.append(BackgroundError(error=error, partitions=frozenset({each})))
            if position is not None and position.offset is None:
                position.problem = error
        return events

    # Manager interface

    def poll(self, now: float) -> DueRequests:
        self._request_for_resets()
        self._notice_new_leaders()
        if not self._backoff.is_ready(now):
            return DueRequests(wake_at=self._backoff.ready_at)
        return DueRequests((*self._list_requests(), *self._epoch_requests()), math.inf)

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        if request.api == "ListOffsets":
            timestamps = {each: self._timestamps.pop(each) for each in request.context}
        else:
            self._clear_queried(request.context)
        if isinstance(outcome, RequestFailure):
            self._backoff.failed(now)
            self._metadata.request_update()
            if outcome.is_retriable:
                return []
            return self.fail(ConsumerError(f"{request.api}: {outcome.reason}"))
        if request.api == "ListOffsets":
            return self._on_offsets(outcome, timestamps, now)
        return self._on_end_offsets(request, outcome, now)

    # ListOffsets

    def _request_for_resets(self) -> None:
        missing = self._positions.missing(PositionState.RESETTING)
        if missing:
            earliest = self._options.auto_offset_reset == "earliest"
            moves = {each: self._positions[each].moves for each in missing}
            for each in missing:
                self._positions[each].is_queried = True
            timestamp = EARLIEST_TIMESTAMP if earliest else LATEST_TIMESTAMP
            self.query(dict.fromkeys(missing, timestamp), lambda results: self._reset_to(results, moves))

    def _reset_to(self, results: Found | ConsumerError, moves: Mapping[TopicPartition, int]) -> list[BackgroundEvent]:
        still = self._unmoved(moves)
        if isinstance(results, ConsumerError):
            for each in still:
                self._positions[each].is_queried = False
            return [BackgroundError(error=results, partitions=frozenset(still))]
        for each in still:
            self._positions.seek(each, results[each].offset, results[each].leader_epoch)
            self._positions[each].leader = self._metadata.leader(each)
        return []

    def _list_requests(self) -> list[UnsentRequest]:
        timestamps: dict[TopicPartition, int] = {}
        for query in self._queries:
            for each, timestamp in query.missing.items():
                if each not in self._timestamps:
                    timestamps.setdefault(each, timestamp)
        return [
            self._request("ListOffsets", node_id, self._list_message(partitions, timestamps), LIST_VERSIONS, partitions)
            for node_id, partitions in self._by_leader(timestamps).items()
        ]

    def _list_message(self, partitions: list[TopicPartition], timestamps: Mapping[TopicPartition, int]) -> Any:
        self._timestamps.update({each: timestamps[each] for each in partitions})
        message = messages.ListOffsetsRequest
        topics = [
            message.ListOffsetsTopic(
                name=topic,
                partitions=[
                    message.ListOffsetsPartition(
                        partition_index=number,
                        current_leader_epoch=self._metadata.leader(TopicPartition(topic, number)).epoch,
                        timestamp=timestamps[TopicPartition(topic, number)],
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return message(replica_id=CONSUMER_REPLICA, isolation_level=int(self._options.read_committed), topics=topics)

    def _on_offsets(self, response: Any, timestamps: Mapping[TopicPartition, int], now: float) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        is_retried = any(each.error_code for topic in response.topics for each in topic.partitions)
        for topic in response.topics:
            for each in topic.partitions:
                partition, code = TopicPartition(topic.name, each.partition_index), ErrorCode.of(each.error_code)
                if code in STALE_LEADER:
                    text = f"ListOffsets of {partition}: {code.name}"
                    self._troubles.report(TroubleKind.REQUEST, ("ListOffsets", partition), text)
                    continue
                self._troubles.end(TroubleKind.REQUEST, ("ListOffsets", partition))
                if code:
                    events += self.fail(BrokerRefused("ListOffsets", code, str(partition)), partition)
                elif partition in timestamps:
                    events += self._report_offsets(
                        partition, timestamps[partition], FoundOffset(each.offset, each.timestamp, each.leader_epoch)
                    )
        self._finish_attempt(is_retried, now)
        return events

    def _report_offsets(self, partition: TopicPartition, timestamp: int, results: FoundOffset) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        for query in list(self._queries):
            if query.missing.get(partition) == timestamp:
                del query.missing[partition]
                query.results[partition] = results
            if not query.missing:
                self._queries.remove(query)
                events += query.deliver(query.results)
        return events

    # OffsetForLeaderEpoch

    def _notice_new_leaders(self) -> None:
        """Validate positions: the log may be truncated below them (KIP-320)."""
        for partition in self._positions.fetchable():
            position = self._positions[partition]
            leader = self._metadata.leader(partition)
            if leader.node_id == NO_LEADER or leader.epoch == position.leader.epoch:
                continue
            if position.record_epoch != NO_EPOCH:
                position.state = PositionState.VALIDATING
            position.leader = leader

    def _epoch_requests(self) -> list[UnsentRequest]:
        missing = self._positions.missing(PositionState.VALIDATING)
        requests = []
        for node_id, partitions in self._by_leader(missing).items():
            moves = {each: self._positions[each].moves for each in partitions}
            for each in partitions:
                self._positions[each].is_queried = True
            message = self._epoch_message(partitions)
            requests.append(self._request("OffsetForLeaderEpoch", node_id, message, EPOCH_VERSIONS, moves))
        return requests

    def _epoch_message(self, partitions: list[TopicPartition]) -> Any:
        message = messages.OffsetForLeaderEpochRequest
        topics = [
            message.OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    message.OffsetForLeaderPartition(
                        partition=number,
                        current_leader_epoch=self._metadata.leader(TopicPartition(topic, number)).epoch,
                        leader_epoch=self._positions[TopicPartition(topic, number)].record_epoch,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        return message(replica_id=CONSUMER_REPLICA, topics=topics)

    def _clear_queried(self, moves: Mapping[TopicPartition, int]) -> None:
        for each in self._unmoved(moves):
            self._positions[each].is_queried = False

    def _unmoved(self, moves: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        return [each for each in moves if each in self._positions and self._positions[each].moves == moves[each]]

    def _on_end_offsets(self, request: UnsentRequest, response: Any, now: float) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        unmoved = self._unmoved(request.context)
        is_retried = False
        for topic in response.topics:
            for each in topic.partitions:
                partition, code = TopicPartition(topic.topic, each.partition), ErrorCode.of(each.error_code)
                if partition not in unmoved:
                    continue
                if code in STALE_LEADER:
                    is_retried = True
                elif code:
                    about = frozenset({partition})
                    error = BrokerRefused("OffsetForLeaderEpoch", code, str(partition))
                    events.append(BackgroundError(error=error, partitions=about))
                    is_retried = True
                else:
                    events += self._check_truncation(partition, each.end_offset, each.leader_epoch)
        self._finish_attempt(is_retried, now)
        return events

    def _check_truncation(self, partition: TopicPartition, end_offset: int, epoch: int) -> list[BackgroundEvent]:
        """Check for truncation: the end offset of the last record's epoch is lower."""
        position = self._positions[partition]
        if end_offset == NOT_FOUND:
            return self.reset([partition], "the leader does not know the epoch of the last record")
        position.state = PositionState.FETCHING
        if end_offset >= position.fetch_from:
            return []
        if self._options.auto_offset_reset == "none":
            text = f"{partition}: the log was cut at {end_offset}, the position is {position.fetch_from}"
            return [BackgroundError(error=LogTruncated(text), partitions=frozenset({partition}))]
        self._positions.truncate(partition, end_offset, epoch)
        return []

    # Shared by both APIs

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        grouped: dict[int, list[TopicPartition]] = {}
        for each in sorted(partitions):
            leader: LeaderAndEpoch = self._metadata.leader(each)
            if leader.node_id != NO_LEADER:
                grouped.setdefault(leader.node_id, []).append(each)
        return grouped

    def _request(
        self, api: str, node_id: int, message: Any, versions: tuple[int, int], context: object
    ) -> UnsentRequest:
        return UnsentRequest(
            sender=self,
            api=api,
            message=message,
            versions=versions,
            timeout_s=self._options.request_timeout_s,
            node_id=node_id,
            context=context,
        )

    def _finish_attempt(self, is_retried: bool, now: float) -> None:
        if is_retried:
            self._backoff.failed(now)
            self._metadata.request_update()
        else:
            self._backoff.succeeded()
