"""A scripted share group: two brokers with sessions and locks, a clock that jumps, and members driven by hand.

Its responses follow KIP-932 as brokers of 4.3 do, as far as a client can tell: sessions are numbered and belong to
their connection, locks end, and a partition's acknowledgements are refused as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.consumer.events import Subscribe
from kafka_share_proxy.consumer.share.share_core import ShareCore, ShareDelivery
from kafka_share_proxy.consumer.share.share_options import ShareConsumerOptions
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records.records import iter_batches
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.world import FakeKafka, World

HEARTBEAT_MS = 1000
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@dataclass
class FakeLock:
    member: str
    until: float


@dataclass
class FakeShare:
    """One share partition."""

    counts: dict[int, int] = field(default_factory=dict)
    """Offset -> deliveries."""
    settled: set[int] = field(default_factory=set)
    locks: dict[int, FakeLock] = field(default_factory=dict)


@dataclass
class FakeSession:
    epoch: int
    partitions: set[TopicPartition]


@dataclass
class _Waiting:
    """A ShareFetch for which there is nothing."""

    until: float
    respond: Callable[[float, bool], bool]


class ShareGroupFake:
    """Members, sessions, locks. It is the `group` of a FakeKafka."""

    def __init__(self, kafka: ShareKafka) -> None:
        self.kafka = kafka
        self.epoch = 1
        self.members: dict[str, int] = {}
        self.topics: dict[str, list[str]] = {}
        self.reported: dict[str, Any] = {}
        self.shares: dict[TopicPartition, FakeShare] = {}
        self.sessions: dict[tuple[int, str], FakeSession] = {}
        self.lock_s = 30.0
        self.renews = True
        self.acknowledged: list[tuple[str, TopicPartition, int, int]] = []
        """Member, partition, offset, type: of all that was taken."""
        self.waiting: list[_Waiting] = []
        self.store_error = 0
        """Error code of the next acknowledgement of each partition."""

    # Time, as World drives it

    def next_deadline(self) -> float:
        locks = [lock.until for share in self.shares.values() for lock in share.locks.values()]
        return min([*locks, *(each.until for each in self.waiting)], default=float("inf"))

    def tick(self, now: float) -> None:
        for share in self.shares.values():
            for offset in [each for each, lock in share.locks.items() if lock.until <= now]:
                del share.locks[offset]
        waiting, self.waiting = self.waiting, []
        self.waiting += [each for each in waiting if not each.respond(now, each.until <= now)]

    # Membership

    def heartbeat(self, message: Any, reply: Any, _: float) -> None:
        response = registry.message("ShareGroupHeartbeatResponse")
        member = message.member_id
        if message.member_epoch == -1:
            self.members.pop(member, None)
            self.topics.pop(member, None)
            reply(response(member_id=member, member_epoch=-1))
            return
        if message.member_epoch and member not in self.members:
            reply(response(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        if member not in self.members:
            self.epoch += 1
        self.members[member] = self.epoch
        if message.subscribed_topic_names is not None:
            self.topics[member] = list(message.subscribed_topic_names)
        assignment = [
            response.TopicPartitions(
                topic_id=self.kafka.ids[name],
                partitions=[
                    n for n in range(self.kafka.topics[name]) if self.may_read(member, TopicPartition(name, n))
                ],
            )
            for name in self.topics[member]
            if name in self.kafka.topics
        ]
        changed = message.member_epoch == 0 or self.reported.get(member) != assignment
        self.reported[member] = assignment
        reply(
            response(
                member_id=member,
                member_epoch=self.epoch,
                heartbeat_interval_ms=HEARTBEAT_MS,
                assignment=response.Assignment(topic_partitions=assignment) if changed else None,
            )
        )

    may_read: Any = staticmethod(lambda member, partition: True)

    # Sessions

    def end_session(self, node_id: int, member: str) -> None:
        """Release what a member holds at a node, as when its connection ends."""
        session = self.sessions.pop((node_id, member), None)
        if session is not None:
            self.release_all(member, session)

    def release_all(self, member: str, session: FakeSession) -> None:
        for partition in session.partitions:
            locks = self.share(partition).locks
            for offset in [each for each, lock in locks.items() if lock.member == member]:
                del locks[offset]

    def share(self, partition: TopicPartition) -> FakeShare:
        return self.shares.setdefault(partition, FakeShare())

    def check_epoch(self, node_id: int, member: str, epoch: int) -> int:
        """Return an error code, or 0 after increasing the epoch of the session."""
        session = self.sessions.get((node_id, member))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (-1, session.epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch += 1
        return 0

    # Acknowledgements

    def acknowledge(self, member: str, partition: TopicPartition, batches: Any, renewing: bool, now: float) -> int:
        share, changes = self.share(partition), []
        if self.store_error:
            code, self.store_error = self.store_error, 0
            return code
        for batch in batches:
            count = batch.last_offset - batch.first_offset + 1
            kinds = list(batch.acknowledge_types)
            kinds = kinds * count if len(kinds) == 1 else kinds
            if len(kinds) != count or (RENEW in kinds and not renewing):
                return ErrorCode.INVALID_REQUEST
            changes += list(zip(range(batch.first_offset, batch.last_offset + 1), kinds, strict=True))
        for offset, kind in changes:
            lock = share.locks.get(offset)
            if lock is None or lock.member != member or lock.until <= now or (kind == RENEW and not self.renews):
                return ErrorCode.INVALID_RECORD_STATE
        for offset, kind in changes:
            self.acknowledged.append((member, partition, offset, kind))
            if kind == RENEW:
                share.locks[offset].until = now + self.lock_s
                continue
            del share.locks[offset]
            if kind != RELEASE:
                share.settled.add(offset)
        return 0

    # Records

    def acquire(self, member: str, partition: TopicPartition, most: int, now: float) -> list[tuple[int, int, int]]:
        """Acquire free records. Return first offset, last offset and delivery count of each range."""
        share, acquired = self.share(partition), []
        for batch in self.kafka.records.get(partition, []):
            header = next(iter_batches(batch))
            for offset in range(header.base_offset, header.last_offset + 1):
                if most <= 0 or offset in share.settled or offset in share.locks:
                    continue
                most -= 1
                share.counts[offset] = share.counts.get(offset, 0) + 1
                share.locks[offset] = FakeLock(member, now + self.lock_s)
                if acquired and acquired[-1][1] + 1 == offset and acquired[-1][2] == share.counts[offset]:
                    acquired[-1] = (acquired[-1][0], offset, acquired[-1][2])
                else:
                    acquired.append((offset, offset, share.counts[offset]))
        return acquired


class ShareKafka(FakeKafka):
    """Two brokers with one share group."""

    def __init__(self, **topics: int) -> None:
        super().__init__("classic", **topics)
        self.share = self.group = ShareGroupFake(self)
        self.moved: dict[TopicPartition, int] = {}
        self.newest = 2
        """Version of ShareFetch and ShareAcknowledge."""

    def produce(self, partition: TopicPartition, count: int) -> None:
        if count:
            super().produce(partition, count)

    def leader(self, partition: TopicPartition) -> int:
        return self.moved.get(partition, super().leader(partition))

    def move(self, partition: TopicPartition, node_id: int) -> None:
        """Change the leader. The new one knows of no locks."""
        self.moved[partition] = node_id
        self.leader_epoch += 1
        self.share.share(partition).locks.clear()

    def on_ShareGroupHeartbeat(self, _: str, message: Any, reply: Any, now: float, __: int) -> None:
        self.share.heartbeat(message, reply, now)

    def on_ShareAcknowledge(self, _: str, message: Any, reply: Any, now: float, node_id: int) -> None:
        response = registry.message("ShareAcknowledgeResponse")
        group, member, epoch = self.share, message.member_id, message.share_session_epoch
        code = group.check_epoch(node_id, member, epoch) if epoch else ErrorCode.INVALID_SHARE_SESSION_EPOCH
        if code:
            reply(response(error_code=code))
            return
        topics = []
        for topic in message.topics:
            listed = []
            for each in topic.partitions:
                place = self.place(topic.topic_id, each.partition_index)
                reported = self.respond_to_acknowledgements(member, place, each, message.is_renew_ack, node_id, now)
                listed.append(
                    response.PartitionData(
                        partition_index=place.partition, error_code=reported, **self.hint(response, place, reported)
                    )
                )
            topics.append(response.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=listed))
        if epoch == -1:
            group.end_session(node_id, member)
        reply(response(acquisition_lock_timeout_ms=round(group.lock_s * 1000), responses=topics))

    def on_ShareFetch(self, _: str, message: Any, reply: Any, now: float, node_id: int) -> None:
        response = registry.message("ShareFetchResponse")
        group, member, epoch = self.share, message.member_id, message.share_session_epoch
        if epoch == 0:
            if any(each.acknowledgement_batches for topic in message.topics for each in topic.partitions):
                reply(response(error_code=ErrorCode.INVALID_REQUEST))
                return
            group.sessions[node_id, member] = FakeSession(1, set())
        elif code := group.check_epoch(node_id, member, epoch):
            reply(response(error_code=code))
            return
        session = group.sessions[node_id, member]
        reported: dict[TopicPartition, int] = {}
        for topic in message.topics:
            for each in topic.partitions:
                place = self.place(topic.topic_id, each.partition_index)
                session.partitions.add(place)
                if each.acknowledgement_batches:
                    reported[place] = self.respond_to_acknowledgements(member, place, each, False, node_id, now)
        for topic in message.forgotten_topics_data:
            session.partitions -= {self.place(topic.topic_id, number) for number in topic.partitions}
        until = now + message.max_wait_ms / 1000

        def respond(at: float, ended: bool) -> bool:
            if group.sessions.get((node_id, member)) is not session:
                reply(response(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND))
                return True
            topics = self.fetched(response, session, reported, message.max_records, node_id, member, at)
            if not topics and not ended:
                return False
            reply(response(acquisition_lock_timeout_ms=round(group.lock_s * 1000), responses=topics))
            return True

        if not respond(now, message.max_wait_ms == 0 or bool(reported)):
            group.waiting.append(_Waiting(until, respond))

    def fetched(
        self, response: Any, session: FakeSession, reported: dict[TopicPartition, int], most: int, node_id: int,
        member: str, now: float,
    ) -> list[Any]:  # fmt: skip
        topics = []
        for place in sorted(session.partitions | reported.keys()):
            wrong = self.leader(place) != node_id
            acquired = [] if wrong or place not in session.partitions else self.share.acquire(member, place, most, now)
            if not (wrong or acquired or place in reported):
                continue
            most -= sum(last - first + 1 for first, last, _ in acquired)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if wrong else 0
            data = response.PartitionData(
                partition_index=place.partition,
                error_code=code,
                acknowledge_error_code=reported.get(place, 0),
                records=self.batches(place, acquired),
                acquired_records=[
                    response.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ],
                **self.hint(response, place, code),
            )
            topic = response.ShareFetchableTopicResponse(topic_id=self.ids[place.topic], partitions=[data])
            topics.append(topic)
        return topics

    def batches(self, place: TopicPartition, acquired: list[tuple[int, int, int]]) -> bytes:
        if not acquired:
            return b""
        first, last = acquired[0][0], acquired[-1][1]
        listed = [(next(iter_batches(batch)), batch) for batch in self.records[place]]
        return b"".join(batch for head, batch in listed if head.last_offset >= first and head.base_offset <= last)

    def respond_to_acknowledgements(
        self, member: str, place: TopicPartition, requested: Any, renewing: bool, node_id: int, now: float
    ) -> int:
        if self.leader(place) != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.share.acknowledge(member, place, requested.acknowledgement_batches, renewing, now)

    def hint(self, response: Any, place: TopicPartition, code: int) -> dict[str, Any]:
        node_id, epoch = (
            (self.leader(place), self.leader_epoch) if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else (-1, -1)
        )
        return {"current_leader": response.LeaderIdAndEpoch(leader_id=node_id, leader_epoch=epoch)}

    def place(self, topic_id: Any, number: int) -> TopicPartition:
        names = {known: name for name, known in self.ids.items()}
        return TopicPartition(names[bytes(topic_id)], number)


class ShareMember:
    """One share consumer and its application, in a World."""

    def __init__(self, world: World, name: str, **options: Any) -> None:
        self.world, self.name = world, name
        self.results: list[Any] = []
        self.events: list[Any] = []
        self.core = ShareCore(
            ShareConsumerOptions(**{"group_id": "g", "acknowledgement_mode": "explicit", **options}),
            jitter=lambda: 0.0,
            member_id=name,
            on_result=self.results.append,
        )
        self.core.start(world.now)
        self.core.handle(Subscribe(frozenset(self.kafka.topics)), world.now)
        world.members.append(self)  # type: ignore[arg-type]  # as much of a Member as it needs

    @property
    def kafka(self) -> ShareKafka:
        kafka: Any = self.world.kafka
        return kafka

    def poll(self, seconds: float = 5.0) -> ShareDelivery:
        """Poll as the application, which waits this long for records."""
        self.core.begin_poll(self.world.now)
        self.core.is_polling = True
        end = self.world.now + seconds
        delivery = self.core.take(self.world.now)
        while not delivery and self.world.now < end:
            self.world.run(0.01)
            self.events += self.core.events()
            delivery = self.core.take(self.world.now)
        self.core.is_polling = False
        return delivery

    def offsets(self, seconds: float = 5.0) -> list[tuple[int, int, int]]:
        """Poll once. Return partition, offset and delivery count of each record."""
        return [
            (part.partition.partition, offset, part.delivery_count)
            for part in self.poll(seconds).parts
            for offset in part.records.positions.offsets
        ]
