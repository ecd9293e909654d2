"""Consumers, a fake Kafka and a clock that jumps: what is scripted here never waits and opens no socket."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.events import (
    AckPartitionsAssigned,
    AssignPartitions,
    BackgroundEvent,
    CallDone,
    Subscribe,
)
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchedChunk
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.consumer.requests import FailureKind, Lane, RequestFailure, UnsentRequest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import Record, build_batch, decode_records, iter_batches
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.fake_group import ClassicFake, ConsumerFake
from tests.consumer.messages import round_trip

LATENCY_S = 0.005
STEPS_MAX = 200_000
"""Maximum number of steps of one run: more means a consumer that sends requests without a pause."""
COORDINATOR = 1

Response = Callable[[UnsentRequest], Any]


class FakeKafka:
    """Two brokers; node 1 coordinates. Every partition is led by 1 + number % 2, in leader epoch 5."""

    def __init__(self, group: str = "classic", **topics: int) -> None:
        self.topics = topics
        self.ids = {name: f"{name:x<16}".encode() for name in topics}
        self.log: list[str] = []
        """Log of the group."""
        self.wire: list[str] = []
        """Every request, in the order of arrival: `time consumer api`."""
        self.group: Any = ClassicFake(self.log) if group == "classic" else ConsumerFake(self.topics, self.ids, self.log)
        self.committed: dict[TopicPartition, int] = {}
        self.texts: dict[TopicPartition, str] = {}
        """Metadata of what is committed."""
        self.starts: dict[TopicPartition, int] = {}
        """Start offsets of logs, if not 0."""
        self.commits: list[tuple[str, TopicPartition, int]] = []
        """Every one that was taken: who, what, where."""
        self.records: dict[TopicPartition, list[bytes]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.leader_epoch = 5
        self.leaderless: set[TopicPartition] = set()
        self.down: set[int] = set()
        self.coordinator = COORDINATOR
        self.faults: dict[str, list[Response]] = {}
        """API -> functions that build the responses to its next requests; None passes the request on."""
        self.batches_of_a_fetch = 2

    def produce(self, partition: TopicPartition, count: int) -> None:
        first = self.ends.get(partition, 0)
        batch = build_batch(
            first, [Record(value=b"%d" % n) for n in range(first, first + count)], leader_epoch=self.leader_epoch
        )
        self.records.setdefault(partition, []).append(batch)
        self.ends[partition] = first + count

    def leader(self, partition: TopicPartition) -> int:
        return -1 if partition in self.leaderless else 1 + partition.partition % 2

    # Requests

    def take(self, who: str, request: UnsentRequest, reply: Callable[[Any], None], now: float) -> None:
        if request.node_id in self.down:
            reply(RequestFailure(FailureKind.DISCONNECTED, "connection refused"))
            return
        self.wire.append(f"{who} {request.api}")
        if self.faults.get(request.api):
            fault = self.faults[request.api].pop(0)(request)
            if fault is not None:
                reply(fault)
                return
        version = request.versions[1]
        message = round_trip(request.message, version)

        def respond(response: Any) -> None:
            reply(round_trip(response, version))

        getattr(self, f"on_{request.api}")(who, message, respond, now, request.node_id)

    def on_Metadata(self, _: str, message: Any, reply: Any, *__: Any) -> None:
        response = registry.message("MetadataResponse")
        names = list(self.topics) if message.topics is None else [each.name for each in message.topics]
        brokers = [
            response.MetadataResponseBroker(node_id=node, host="kafka", port=9090 + node)
            for node in (1, 2)
            if node not in self.down
        ]
        reply(response(brokers=brokers, topics=[self._topic(response, name) for name in names]))

    def _topic(self, response: Any, name: str) -> Any:
        if name not in self.topics:
            return response.MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            response.MetadataResponsePartition(
                partition_index=number,
                leader_id=self.leader(TopicPartition(name, number)),
                leader_epoch=self.leader_epoch,
            )
            for number in range(self.topics[name])
        ]
        return response.MetadataResponseTopic(name=name, topic_id=self.ids[name], partitions=partitions)

    def on_FindCoordinator(self, _: str, message: Any, reply: Any, *__: Any) -> None:
        response = registry.message("FindCoordinatorResponse")
        coordinators = [
            response.Coordinator(key=key, node_id=self.coordinator, host="kafka", port=9090 + self.coordinator)
            for key in message.coordinator_keys
        ]
        reply(response(coordinators=coordinators))

    def on_JoinGroup(self, _: str, message: Any, reply: Any, now: float, __: int) -> None:
        self.group.join_group(message, reply, now)

    def on_SyncGroup(self, _: str, message: Any, reply: Any, now: float, __: int) -> None:
        self.group.sync_group(message, reply, now)

    def on_Heartbeat(self, _: str, message: Any, reply: Any, now: float, __: int) -> None:
        self.group.heartbeat(message, reply, now)

    def on_ConsumerGroupHeartbeat(self, _: str, message: Any, reply: Any, now: float, __: int) -> None:
        self.group.heartbeat(message, reply, now)

    def on_LeaveGroup(self, _: str, message: Any, reply: Any, now: float, __: int) -> None:
        self.group.leave_group(message, reply, now)

    def on_OffsetCommit(self, who: str, message: Any, reply: Any, _: float, node_id: int) -> None:
        response = registry.message("OffsetCommitResponse")
        code = self.group.may_commit(message.member_id, message.generation_id_or_member_epoch)
        if node_id != self.coordinator:
            code = ErrorCode.NOT_COORDINATOR
        topics = []
        for topic in message.topics:
            listed = []
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if not code:
                    self.committed[place] = each.committed_offset
                    self.texts[place] = each.committed_metadata or ""
                    self.commits.append((who, place, each.committed_offset))
                listed.append(
                    response.OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                )
            topics.append(response.OffsetCommitResponseTopic(name=topic.name, partitions=listed))
        reply(response(topics=topics))

    def on_OffsetFetch(self, _: str, message: Any, reply: Any, *__: Any) -> None:
        response = registry.message("OffsetFetchResponse")
        (group,) = message.groups
        topics = [
            response.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    response.OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=self.committed.get(TopicPartition(topic.name, number), -1),
                        metadata=self.texts.get(TopicPartition(topic.name, number), ""),
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        reply(response(groups=[response.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)]))

    def on_ListOffsets(self, _: str, message: Any, reply: Any, *__: Any) -> None:
        response = registry.message("ListOffsetsResponse")
        topics = [
            response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    response.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        offset=self.starts.get(TopicPartition(topic.name, each.partition_index), 0)
                        if each.timestamp == -2
                        else self.ends.get(TopicPartition(topic.name, each.partition_index), 0),
                        leader_epoch=self.leader_epoch,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        reply(response(topics=topics))

    def on_Fetch(self, _: str, message: Any, reply: Any, *__: Any) -> None:
        response = registry.message("FetchResponse")
        names = {topic_id: name for name, topic_id in self.ids.items()}
        topics = [
            response.FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    self._fetched(response, TopicPartition(names[bytes(topic.topic_id)], each.partition), each)
                    for each in topic.partitions
                ],
            )
            for topic in message.topics
        ]
        reply(response(responses=topics))

    def _fetched(self, response: Any, place: TopicPartition, requested: Any) -> Any:
        batches = self.records.get(place, [])
        first = bisect_left(batches, requested.fetch_offset, key=lambda batch: next(iter_batches(batch)).last_offset)
        end = self.ends.get(place, 0)
        return response.PartitionData(
            partition_index=place.partition,
            error_code=ErrorCode.NONE
            if self.starts.get(place, 0) <= requested.fetch_offset <= end
            else ErrorCode.OFFSET_OUT_OF_RANGE,
            high_watermark=end,
            last_stable_offset=end,
            records=b"".join(batches[first : first + self.batches_of_a_fetch]),
        )


def _is_empty(outcome: Any) -> bool:
    """Return True for a Fetch response for which a broker would have waited."""
    if isinstance(outcome, RequestFailure):
        return False
    partitions = [each for topic in outcome.responses for each in topic.partitions]
    return not any(each.error_code or each.records for each in partitions)


class PollOutcome(NamedTuple):
    chunks: list[FetchedChunk]
    to_be_revoked: Partitions
    lost: Partitions


class Member:
    """One consumer and its application."""

    def __init__(self, world: World, name: str, **options: Any) -> None:
        self.world, self.name = world, name
        self.options = ConsumerOptions(**{"group_id": "g", "auto_offset_reset": "earliest", **options})
        self.core = ConsumerCore(self.options, jitter=lambda: 0.0, member_id=f"id-{name}")
        self.events: list[BackgroundEvent] = []
        self.got: list[tuple[TopicPartition, int]] = []
        """Every record that the application was given."""
        self.core.start(world.now)

    def poll(self) -> PollOutcome:
        """Poll as the application does: return what is there, and acknowledge what was assigned."""
        self.core.begin_poll(self.world.now)
        self.world.settle()
        outcome = self.end_poll()
        self.collect()
        for chunk in outcome.chunks:
            for header in iter_batches(chunk.records):
                batch = chunk.records[header.position : header.position + header.size]
                end = math.inf if chunk.until is None else chunk.until
                offsets = [each.offset for each in decode_records(batch) if chunk.first <= each.offset < end]
                self.got += [(chunk.partition, offset) for offset in offsets]
            self.core.consumed(chunk.partition, chunk.next_offset, chunk.flow)
        self.world.settle()
        return outcome

    def end_poll(self) -> PollOutcome:
        to_be_revoked, lost = self.core.ledger.end_poll()
        chunks = [chunk for each in self.core.flows for chunk in each.take(math.inf)]
        return PollOutcome(chunks, to_be_revoked, lost)

    def collect(self) -> None:
        for event in self.core.events():
            self.events.append(event)
            if isinstance(event, AssignPartitions):
                self.core.handle(AckPartitionsAssigned(event.rebalance_id), self.world.now)

    def handle(self, event: Any) -> None:
        self.core.handle(event, self.world.now)
        self.world.settle()

    def subscribe(self, *topics: str) -> Member:
        self.handle(Subscribe(frozenset(topics)))
        return self

    def chain(self) -> list[str]:
        """Return the states of the rebalance, from the first to the present one."""
        return [state.name for state in self.core.rebalance_trace.chain()]

    def results(self) -> dict[int, CallDone]:
        self.collect()
        done = [each for each in self.events if isinstance(each, CallDone)]
        assert len(done) == len({each.call_id for each in done}), "a call ended twice"
        return {each.call_id: each for each in done}

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of one kind so far."""
        self.collect()
        return [each for each in self.events if isinstance(each, kind)]


class World:
    """Everything moves in steps of one request, one response, or one deadline."""

    def __init__(self, kafka: FakeKafka, latency: Callable[[], float] = lambda: LATENCY_S) -> None:
        """Each way of each request takes `latency()`; those of one connection arrive in their order."""
        self.kafka = kafka
        self._latency = latency
        self._last: dict[tuple[str, Lane, str], float] = {}
        """Arrival time of the last response, by connection and direction."""
        self.now = 1000.0
        self.members: list[Member] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = self._steps = 0

    def member(self, name: str, **options: Any) -> Member:
        self.members.append(Member(self, name, **options))
        return self.members[-1]

    def kill(self, member: Member) -> None:
        """End the process of a member, which sends nothing."""
        self.members.remove(member)

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, action))

    def settle(self) -> None:
        """Send all requests that are due; nothing arrives yet."""
        for member in self.members:
            for request in member.core.poll(self.now):
                self._send(member, request)

    def _send(self, member: Member, request: UnsentRequest) -> None:
        def arrive() -> None:
            self.kafka.take(member.name, request, reply, self.now)

        def reply(outcome: Any) -> None:
            pause = request.message.max_wait_ms / 1000 if request.api == "Fetch" and _is_empty(outcome) else 0.0
            self.at(pause + self._arrival(member, request, "back"), lambda: self._respond(member, request, outcome))

        self.at(self._arrival(member, request, "there"), arrive)

    def _arrival(self, member: Member, request: UnsentRequest, way: str) -> float:
        connection = (member.name, request.lane, way)
        self._last[connection] = max(self._last.get(connection, 0.0), self.now + self._latency())
        return self._last[connection]

    def _respond(self, member: Member, request: UnsentRequest, outcome: Any) -> None:
        if member in self.members:
            member.core.on_response(request, outcome, self.now)

    def run(self, seconds: float, polling: Iterable[Member] = (), every: float = 0.05) -> None:
        """Let time pass; these applications poll at an interval, the others do not."""
        end, next_poll = self.now + seconds, self.now
        polling = list(polling)
        while self.now < end:
            self._steps += 1
            assert self._steps < STEPS_MAX, f"asking without a pause: {self.kafka.wire[-10:]}"
            self.settle()
            if polling and self.now >= next_poll:
                for member in polling:
                    if member in self.members:
                        member.poll()
                next_poll = self.now + every
            deadlines = [member.core.next_deadline for member in self.members]
            deadlines += [self.kafka.group.next_deadline(), self._due[0][0] if self._due else math.inf]
            deadlines += [next_poll] if polling else []
            self.now = min(end, max(self.now, min(deadlines)))
            self.kafka.group.tick(self.now)
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()

    def until(self, condition: Callable[[], bool], polling: Iterable[Member], seconds: float = 60.0) -> None:
        """Run until the condition is true; fails if it never is."""
        end = self.now + seconds
        while not condition() and self.now < end:
            self.run(0.05, polling)
        assert condition(), f"not after {seconds} s: {self.kafka.log[-5:]} {self.kafka.wire[-10:]}"
