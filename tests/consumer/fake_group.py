"""A group coordinator in memory, answering as Kafka's does: classic groups and KIP-848, commits and their checks.

Its responses to commits are those measured on brokers of 3.9.1 and 4.3.0 (old generation while preparing 0, joined but
not synced 27 / 22, unknown member 25, no member while members live 25).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

Reply = Callable[[Any], None]
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


@dataclass
class Member:
    """Member of a classic group."""

    instance_id: str | None = None
    protocols: dict[str, bytes] = field(default_factory=dict)
    join: Reply | None = None
    sync: Reply | None = None
    session_s: float = 45.0
    rebalance_s: float = 300.0
    deadline: float = math.inf


class ClassicFake:
    """One classic group (GroupMetadataManager.classicGroup...)."""

    def __init__(self, log: list[str]) -> None:
        self.members: dict[str, Member] = {}
        self.state, self.generation, self.leader, self.protocol = EMPTY, 0, "", ""
        self.rebalance_until = math.inf
        self.log = log
        self._ids = 0

    # Requests

    def join_group(self, request: Any, reply: Reply, now: float) -> None:
        response = registry.message("JoinGroupResponse")
        member_id = request.member_id
        if request.group_instance_id and not member_id:
            member_id = next((i for i, m in self.members.items() if m.instance_id == request.group_instance_id), "")
            if not member_id:
                self._ids += 1
                member_id = f"{request.group_instance_id}-{self._ids}"
        elif not member_id:
            self._ids += 1
            reply(response(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"member-{self._ids}", protocol_name=""))
            return
        elif member_id not in self.members and not member_id.startswith("member-"):
            reply(response(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id, protocol_name=""))
            return
        if member_id in self.lost:
            reply(response(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id, protocol_name=""))
            return
        member = self.members.setdefault(member_id, Member(request.group_instance_id))
        member.protocols = {each.name: bytes(each.metadata) for each in request.protocols}
        member.session_s = request.session_timeout_ms / 1000
        member.rebalance_s = request.rebalance_timeout_ms / 1000
        member.join, member.deadline = reply, math.inf
        if self.state in (EMPTY, STABLE, COMPLETING):
            self.prepare(now)
        self.tick(now)

    lost: frozenset[str] = frozenset()

    def prepare(self, now: float) -> None:
        self.state = PREPARING
        self.rebalance_until = now + max((m.rebalance_s for m in self.members.values()), default=0.0)
        for member_id, member in self.members.items():
            if member.sync is not None:
                member.sync(registry.message("SyncGroupResponse")(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync = None
            assert member_id

    def sync_group(self, request: Any, reply: Reply, now: float) -> None:
        response = registry.message("SyncGroupResponse")
        code = self.check(request.member_id, request.generation_id)
        if code or self.state == PREPARING:
            reply(response(error_code=code or ErrorCode.REBALANCE_IN_PROGRESS))
            return
        member = self.members[request.member_id]
        if self.state == STABLE:
            reply(response(assignment=self.assignments.get(request.member_id, b"")))
            return
        member.sync = reply
        if request.member_id == self.leader:
            self.assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
            self.state = STABLE
            self.log.append(f"stable generation {self.generation}")
            for member_id, each in self.members.items():
                each.deadline = now + each.session_s
                if each.sync is not None:
                    each.sync(response(assignment=self.assignments.get(member_id, b"")))
                    each.sync = None

    assignments: dict[str, bytes] = {}  # noqa: RUF012 - replaced, never changed

    def heartbeat(self, request: Any, reply: Reply, now: float) -> None:
        code = self.check(request.member_id, request.generation_id)
        if not code:
            self.members[request.member_id].deadline = now + self.members[request.member_id].session_s
            code = ErrorCode.REBALANCE_IN_PROGRESS if self.state == PREPARING else ErrorCode.NONE
        reply(registry.message("HeartbeatResponse")(error_code=code))

    def leave_group(self, request: Any, reply: Reply, now: float) -> None:
        for each in request.members:
            self.remove(each.member_id, now, "left")
        reply(registry.message("LeaveGroupResponse")())

    def check(self, member_id: str, generation: int) -> ErrorCode:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def may_commit(self, member_id: str, generation: int) -> ErrorCode:
        if generation < 0 and not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID if self.members else ErrorCode.NONE
        code = self.check(member_id, generation)
        return code or (ErrorCode.REBALANCE_IN_PROGRESS if self.state == COMPLETING else ErrorCode.NONE)

    # Time

    def remove(self, member_id: str, now: float, why: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self.log.append(f"{member_id} {why}")
            if not self.members:
                self.state, self.rebalance_until = EMPTY, math.inf
            elif self.state in (STABLE, COMPLETING):
                self.prepare(now)
            self.tick(now)

    def tick(self, now: float) -> None:
        for member_id, member in list(self.members.items()):
            if now >= member.deadline and member.join is None:
                self.remove(member_id, now, "expired")
        if self.state != PREPARING:
            return
        if now >= self.rebalance_until:
            for member_id in [i for i, m in self.members.items() if m.join is None]:
                self.log.append(f"{member_id} did not join in time")
                del self.members[member_id]
        if self.members and all(member.join is not None for member in self.members.values()):
            self.complete(now)

    def complete(self, now: float) -> None:
        self.generation += 1
        self.state, self.rebalance_until = COMPLETING, math.inf
        self.leader = self.leader if self.leader in self.members else next(iter(self.members))
        common = set.intersection(*(set(m.protocols) for m in self.members.values()))
        self.protocol = next(name for name in self.members[self.leader].protocols if name in common)
        response = registry.message("JoinGroupResponse")
        listed = [
            response.JoinGroupResponseMember(
                member_id=i, group_instance_id=m.instance_id, metadata=m.protocols[self.protocol]
            )
            for i, m in self.members.items()
        ]
        for member_id, member in self.members.items():
            reply, member.join = member.join, None
            member.deadline = now + member.session_s
            assert reply is not None
            reply(
                response(
                    generation_id=self.generation,
                    protocol_type="consumer",
                    protocol_name=self.protocol,
                    leader=self.leader,
                    member_id=member_id,
                    members=listed if member_id == self.leader else [],
                )
            )

    def next_deadline(self) -> float:
        return min([self.rebalance_until, *(m.deadline for m in self.members.values())])


@dataclass
class Member848:
    """Member of a KIP-848 group."""

    instance_id: str | None
    topics: tuple[str, ...] = ()
    epoch: int = 0
    has: frozenset[TopicPartition] = frozenset()
    """Assignment in the last response to it."""
    revoking: frozenset[TopicPartition] = frozenset()
    """Partitions that it has not released yet."""
    session_until: float = math.inf
    revoke_until: float = math.inf
    rebalance_s: float = 300.0


class ConsumerFake:
    """One KIP-848 group (ConsumerGroup, CurrentAssignmentBuilder): the current owner is notified before the next one
    gets a partition.
    """

    INTERVAL_S, SESSION_S = 5.0, 45.0

    def __init__(self, topics: dict[str, int], ids: dict[str, bytes], log: list[str]) -> None:
        self.topics, self.ids, self.log = topics, ids, log
        self.names = {topic_id: name for name, topic_id in ids.items()}
        self.members: dict[str, Member848] = {}
        self.epoch = 0
        self.target: dict[str, frozenset[TopicPartition]] = {}

    def heartbeat(self, request: Any, reply: Reply, now: float) -> None:
        response = registry.message("ConsumerGroupHeartbeatResponse")
        if request.member_epoch < 0:
            self.remove(request.member_id, "left")
            reply(response(member_id=request.member_id, member_epoch=request.member_epoch))
            return
        member = self.members.get(request.member_id)
        if request.member_epoch == 0:
            if member is None:
                member = self.members[request.member_id] = Member848(request.instance_id)
            member.epoch, member.has, member.revoking = 0, frozenset(), frozenset()
            member.rebalance_s = request.rebalance_timeout_ms / 1000
        if member is None:
            reply(response(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        if request.member_epoch != member.epoch:
            reply(response(error_code=ErrorCode.FENCED_MEMBER_EPOCH))
            return
        member.session_until = now + self.SESSION_S
        if request.subscribed_topic_names is not None and tuple(request.subscribed_topic_names) != member.topics:
            member.topics = tuple(request.subscribed_topic_names)
            self.bump()
        before = (member.epoch, member.has)
        self.reconcile(request, member, now)
        has_assignment = request.member_epoch == 0 or (member.epoch, member.has) != before
        reply(
            response(
                member_id=request.member_id,
                member_epoch=member.epoch,
                heartbeat_interval_ms=round(self.INTERVAL_S * 1000),
                assignment=self.assignment(response, member.has) if has_assignment else None,
            )
        )

    def reconcile(self, request: Any, member: Member848, now: float) -> None:
        if member.revoking and request.topic_partitions is not None:
            owned = {
                TopicPartition(self.names[bytes(each.topic_id)], number)
                for each in request.topic_partitions
                for number in each.partitions
            }
            if not owned & member.revoking:
                member.revoking, member.revoke_until = frozenset(), math.inf
        if member.revoking:
            return
        expected = self.target.get(request.member_id, frozenset())
        if revoked_partitions := member.has - expected:
            member.has, member.revoking = member.has - revoked_partitions, revoked_partitions
            member.revoke_until = now + member.rebalance_s
            return
        held = frozenset().union(*(m.has | m.revoking for m in self.members.values() if m is not member))
        member.epoch, member.has = self.epoch, expected - held

    def bump(self) -> None:
        self.epoch += 1
        self.target = {each: frozenset() for each in self.members}
        holdings = {each: set(m.has | m.revoking) for each, m in self.members.items()}
        for topic, count in sorted(self.topics.items()):
            takers = sorted(each for each, m in self.members.items() if topic in m.topics)
            most = math.ceil(count / len(takers)) if takers else 0
            free = []
            for number in range(count):
                place = TopicPartition(topic, number)
                owner = next((each for each in takers if place in holdings[each]), None)
                if owner is not None and len([p for p in self.target[owner] if p.topic == topic]) < most:
                    self.target[owner] |= {place}
                else:
                    free.append(place)
            for place in free:
                taker = min(takers, key=lambda each: (len(self.target[each]), each), default=None)
                if taker is not None:
                    self.target[taker] |= {place}

    def assignment(self, response: Any, has: frozenset[TopicPartition]) -> Any:
        numbers: dict[str, list[int]] = {}
        for each in sorted(has):
            numbers.setdefault(each.topic, []).append(each.partition)
        return response.Assignment(
            topic_partitions=[
                response.TopicPartitions(topic_id=self.ids[topic], partitions=each) for topic, each in numbers.items()
            ]
        )

    def remove(self, member_id: str, why: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self.log.append(f"{member_id} {why}")
            self.bump()

    def may_commit(self, member_id: str, epoch: int) -> ErrorCode:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID if self.members or member_id else ErrorCode.NONE
        return ErrorCode.NONE if epoch == self.members[member_id].epoch else ErrorCode.STALE_MEMBER_EPOCH

    def tick(self, now: float) -> None:
        for member_id, member in list(self.members.items()):
            if now >= member.session_until:
                self.remove(member_id, "expired")
            elif now >= member.revoke_until:
                self.remove(member_id, "fenced")

    def next_deadline(self) -> float:
        return min([math.inf, *(min(m.session_until, m.revoke_until) for m in self.members.values())])
