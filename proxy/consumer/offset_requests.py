"""ListOffsets and OffsetForLeaderEpoch: offsets by time, the reset policy, and whether a log was cut.

Source: OffsetsRequestManager, OffsetFetcherUtils, KIP-320.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxy.consumer.events import BackgroundError, BackgroundEvent, BrokerRefused, ConsumerError
from proxy.consumer.metadata_requests import NO_EPOCH, NO_LEADER, LeaderAndEpoch, MetadataRequests
from proxy.consumer.options import ConsumerOptions
from proxy.consumer.partitions import by_topic
from proxy.consumer.positions import Positions, PositionState
from proxy.consumer.requests import Outcome, RequestFailure, RetryBackoff, UnsentRequest, Wanted
from proxy.wire import messages
from proxy.wire.errors import ErrorCode
from proxy.wire.values import TopicPartition

LIST_VERSIONS = (7, 9)
"""From 7 on the largest timestamp can be asked for (KIP-734)."""
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
"""Ask again, at whoever leads then."""


class FoundOffset(NamedTuple):
    """An answer of ListOffsets."""

    offset: int
    """-1: no record is that young."""
    timestamp: int
    """Milliseconds since 1970; -1 where none was asked for."""
    leader_epoch: int


Found = Mapping[TopicPartition, FoundOffset]
Deliver = Callable[[Found | ConsumerError], list[BackgroundEvent]]


class NoOffsetForPartition(ConsumerError):
    """There is no offset to go on from, and the reset policy is `none`."""

    def __init__(self, partition: TopicPartition, reason: str, moves: int) -> None:
        self.partition = partition
        self.moves = moves
        """Of the position, when it was said: whoever seeks since has an offset."""
        super().__init__(f"{partition}: {reason}, and auto.offset.reset is none; seek")


class LogTruncated(ConsumerError):
    """The log was cut below the position, and the reset policy is `none`."""


@dataclass(slots=True, eq=False)
class _Question:
    missing: dict[TopicPartition, int]
    deliver: Deliver
    found: dict[TopicPartition, FoundOffset] = field(default_factory=dict)


class OffsetRequests:
    """The ListOffsets of one consumer: for its application, and to find where to begin."""

    def __init__(
        self, options: ConsumerOptions, metadata: MetadataRequests, positions: Positions, backoff: RetryBackoff
    ) -> None:
        self._options = options
        self._metadata = metadata
        self._positions = positions
        self._backoff = backoff
        self._questions: list[_Question] = []
        self._asked: dict[TopicPartition, int] = {}
        """The timestamp about which ListOffsets is under way; a request names a partition once."""

    # What others ask

    def ask(self, timestamps: Mapping[TopicPartition, int], deliver: Deliver) -> None:
        """Find the offsets of these timestamps; `deliver` is called once."""
        self._questions.append(_Question(dict(timestamps), deliver))

    def reset(
        self, partitions: Iterable[TopicPartition], reason: str = "nothing is committed"
    ) -> list[BackgroundEvent]:
        """Go on where the reset policy says; with `none` that is an error, which gives the reason."""
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

    # The manager

    def poll(self, now: float) -> Wanted:
        """Requests to the leaders of all partitions that somebody asks about."""
        self._ask_for_resets()
        self._notice_new_leaders()
        if not self._backoff.is_ready(now):
            return Wanted(wake_at=self._backoff.ready_at)
        return Wanted((*self._listing(now), *self._validating(now)), math.inf)

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float) -> list[BackgroundEvent]:
        """Take the answer to a ListOffsets, or note why there is none."""
        if request.api == "ListOffsets":
            asked = {each: self._asked.pop(each) for each in request.context}
        else:
            self._unask(request.context)
        if isinstance(outcome, RequestFailure):
            self._backoff.failed(now)
            self._metadata.request_update()
            if outcome.is_retriable:
                return []
            return self._fail(ConsumerError(f"{request.api}: {outcome.text or outcome.kind.value}"))
        if request.api == "ListOffsets":
            return self._listed(outcome, asked, now)
        return self._validated(request, outcome, now)

    # ListOffsets

    def _ask_for_resets(self) -> None:
        missing = self._positions.missing(PositionState.RESETTING)
        if missing:
            earliest = self._options.auto_offset_reset == "earliest"
            moves = {each: self._positions[each].moves for each in missing}
            for each in missing:
                self._positions[each].asking = True
            timestamp = EARLIEST_TIMESTAMP if earliest else LATEST_TIMESTAMP
            self.ask(dict.fromkeys(missing, timestamp), lambda found: self._reset_to(found, moves))

    def _reset_to(self, found: Found | ConsumerError, moves: Mapping[TopicPartition, int]) -> list[BackgroundEvent]:
        still = [each for each in moves if each in self._positions and self._positions[each].moves == moves[each]]
        if isinstance(found, ConsumerError):
            for each in still:
                self._positions[each].asking = False
            return [BackgroundError(error=found, partitions=frozenset(still))]
        for each in still:
            self._positions.seek(each, found[each].offset, found[each].leader_epoch)
            self._positions[each].leader = self._metadata.leader(each)
        return []

    def _listing(self, _: float) -> list[UnsentRequest]:
        wanted: dict[TopicPartition, int] = {}
        for question in self._questions:
            for each, timestamp in question.missing.items():
                if each not in self._asked:
                    wanted.setdefault(each, timestamp)
        return [
            self._request("ListOffsets", node_id, self._list_message(partitions, wanted), LIST_VERSIONS, partitions)
            for node_id, partitions in self._by_leader(wanted).items()
        ]

    def _list_message(self, partitions: list[TopicPartition], timestamps: Mapping[TopicPartition, int]) -> Any:
        self._asked.update({each: timestamps[each] for each in partitions})
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

    def _listed(self, answer: Any, asked: Mapping[TopicPartition, int], now: float) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        again = any(each.error_code for topic in answer.topics for each in topic.partitions)
        for topic in answer.topics:
            for each in topic.partitions:
                partition, code = TopicPartition(topic.name, each.partition_index), ErrorCode.of(each.error_code)
                if code in STALE_LEADER:
                    continue
                if code:
                    events += self._fail(BrokerRefused("ListOffsets", code, str(partition)), partition)
                elif partition in asked:
                    events += self._found(
                        partition, asked[partition], FoundOffset(each.offset, each.timestamp, each.leader_epoch)
                    )
        self._after(again, now)
        return events

    def _found(self, partition: TopicPartition, timestamp: int, found: FoundOffset) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        for question in list(self._questions):
            if question.missing.get(partition) == timestamp:
                del question.missing[partition]
                question.found[partition] = found
            if not question.missing:
                self._questions.remove(question)
                events += question.deliver(question.found)
        return events

    def _fail(self, error: ConsumerError, about: TopicPartition | None = None) -> list[BackgroundEvent]:
        failed = [each for each in self._questions if about is None or about in each.missing]
        self._questions = [each for each in self._questions if each not in failed]
        return [event for question in failed for event in question.deliver(error)]

    # OffsetForLeaderEpoch

    def _notice_new_leaders(self) -> None:
        """A position under a new leader epoch is right only if the log was not cut before it (KIP-320)."""
        for partition in self._positions.fetchable():
            position = self._positions[partition]
            leader = self._metadata.leader(partition)
            if leader.node_id == NO_LEADER or leader.epoch == position.leader.epoch:
                continue
            if position.record_epoch != NO_EPOCH:
                position.state = PositionState.VALIDATING
            position.leader = leader

    def _validating(self, _: float) -> list[UnsentRequest]:
        missing = self._positions.missing(PositionState.VALIDATING)
        requests = []
        for node_id, partitions in self._by_leader(missing).items():
            moves = {each: self._positions[each].moves for each in partitions}
            for each in partitions:
                self._positions[each].asking = True
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

    def _unask(self, moves: Mapping[TopicPartition, int]) -> None:
        for each in self._unmoved(moves):
            self._positions[each].asking = False

    def _unmoved(self, moves: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        return [each for each in moves if each in self._positions and self._positions[each].moves == moves[each]]

    def _validated(self, request: UnsentRequest, answer: Any, now: float) -> list[BackgroundEvent]:
        events: list[BackgroundEvent] = []
        unmoved = self._unmoved(request.context)
        again = False
        for topic in answer.topics:
            for each in topic.partitions:
                partition, code = TopicPartition(topic.topic, each.partition), ErrorCode.of(each.error_code)
                if partition not in unmoved:
                    continue
                if code in STALE_LEADER:
                    again = True
                elif code:
                    about = frozenset({partition})
                    error = BrokerRefused("OffsetForLeaderEpoch", code, str(partition))
                    events.append(BackgroundError(error=error, partitions=about))
                    again = True
                else:
                    events += self._compare(partition, each.end_offset, each.leader_epoch)
        self._after(again, now)
        return events

    def _compare(self, partition: TopicPartition, end_offset: int, epoch: int) -> list[BackgroundEvent]:
        """Where the epoch of our last record ends at the leader: below our position the log was cut there."""
        position = self._positions[partition]
        if end_offset == NOT_FOUND:
            return self.reset([partition], "the leader does not know the epoch of the last record")
        position.state = PositionState.FETCHING
        if end_offset >= position.fetch_from:
            return []
        if self._options.auto_offset_reset == "none":
            text = f"{partition}: the log was cut at {end_offset}, the position is {position.fetch_from}"
            return [BackgroundError(error=LogTruncated(text), partitions=frozenset({partition}))]
        self._positions.log_was_cut(partition, end_offset, epoch)
        return []

    # Both

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

    def _after(self, again: bool, now: float) -> None:
        if again:
            self._backoff.failed(now)
            self._metadata.request_update()
        else:
            self._backoff.succeeded()
