"""Cases of groups of KIP-848: heartbeats, epochs, assignment, fencing, static members."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic, SetUpFailed
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.wire.errors import ErrorCode, error_name

NEEDS = ("consumer-groups",)
HEARTBEAT = "KIP-848; GroupMetadataManager.consumerGroupHeartbeat"
CHECKS = "KIP-848; GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid"
INTERVAL_MS = 5000


@dataclass
class ConsumerGroupClient:
    """One member of a group of KIP-848."""

    run: CaseRun
    group: str
    member_id: str
    epoch: int = 0
    assigned: dict[bytes, list[int]] = field(default_factory=dict)

    async def heartbeat(self, epoch: int | None = None, **fields: Any) -> Any:
        """Send a ConsumerGroupHeartbeat and keep what an accepted one returns."""
        sent = self.epoch if epoch is None else epoch
        values: dict[str, Any] = {"group_id": self.group, "member_id": self.member_id, "member_epoch": sent}
        values |= {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
        on = await self.run.coordinator(self.group)
        response = await self.run.request("ConsumerGroupHeartbeat", on, **(values | fields))
        if response.error_code == 0:
            self.epoch, self.member_id = response.member_epoch, response.member_id
            if response.assignment is not None:
                parts = response.assignment.topic_partitions
                self.assigned = {bytes(each.topic_id): sorted(each.partitions) for each in parts}
        return response

    async def first(self, *topics: str, **fields: Any) -> Any:
        """Send the heartbeat of a join."""
        self.run.at_end(self.leave)
        values = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
        return await self.heartbeat(0, **(values | fields))

    async def confirm(self) -> Any:
        """Send a heartbeat that owns what is assigned."""
        owned = [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in self.assigned.items()]
        return await self.heartbeat(topic_partitions=owned)

    async def join(self, *topics: CaseTopic) -> None:
        """Join and confirm until all partitions of the topics are assigned. Raises SetUpFailed, Mismatch."""
        response = await self.first(*(topic.name for topic in topics))
        if response.error_code:
            raise SetUpFailed(f"cannot join: {error_name(response.error_code)} {response.error_message or ''}")

        async def complete() -> bool:
            await self.confirm()
            return all(self.assigned.get(topic.topic_id) == topic.partitions for topic in topics)

        await self.run.until(complete, "the assignment of all partitions")

    async def leave(self) -> None:
        """Leave the group if it is joined."""
        if self.epoch > 0:
            await self.heartbeat(-1)


def consumer(run: CaseRun, group: str | None = None) -> ConsumerGroupClient:
    """Return a member that has not joined."""
    return ConsumerGroupClient(run, group or run.group(), run.name("m")[-36:])


@case("groups.consumer.join", HEARTBEAT, needs=NEEDS)
async def join(run: CaseRun) -> None:
    """A join gets a member epoch above 0, the heartbeat interval and its assignment."""
    topic = await run.topic(2)
    member = consumer(run)
    response = await member.first(topic.name)
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    true("MemberEpoch", response.member_epoch > 0, "above 0", response.member_epoch)
    equal("HeartbeatIntervalMs", response.heartbeat_interval_ms, INTERVAL_MS)

    async def assigned() -> bool:
        await member.confirm()
        return member.assigned == {topic.topic_id: [0, 1]}

    await run.until(assigned, "the assignment of both partitions")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "empty-group": ({"group_id": ""}, "an empty GroupId"),
    "epoch-minus-3": ({"member_epoch": -3}, "epoch -3"),
    "empty-instance": ({"instance_id": ""}, "an empty InstanceId"),
    "empty-rack": ({"rack_id": ""}, "an empty RackId"),
    "no-rebalance-timeout": ({"rebalance_timeout_ms": -1}, "epoch 0 and no RebalanceTimeoutMs"),
    "null-topics": ({"subscribed_topic_names": None}, "epoch 0 and null topics"),
    "null-owned": ({"topic_partitions": None}, "epoch 0 and null TopicPartitions"),
    "owned": ({"topic_partitions": [{"topic_id": b"\x01" * 16, "partitions": [0]}]}, "epoch 0 and owned partitions"),
}


@case_for_each(BAD, "groups.consumer.invalid-{name}", CHECKS, needs=NEEDS)
async def invalid(run: CaseRun, fields: dict[str, Any], _words: str) -> None:
    """A heartbeat with {1} is refused with INVALID_REQUEST."""
    topic = await run.topic()
    response = await consumer(run).first(topic.name, **fields)
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REQUEST)


@case(
    "groups.consumer.empty-member-id",
    "KIP-1082; ConsumerGroupHeartbeatRequest.json",
    needs=(*NEEDS, "ConsumerGroupHeartbeat:1"),
)
async def empty_member_id(run: CaseRun) -> None:
    """A heartbeat v1 without a member id is refused with INVALID_REQUEST: clients generate it."""
    response = await consumer(run).first((await run.topic()).name, member_id="")
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REQUEST)


@case("groups.consumer.unknown-assignor", CHECKS, needs=NEEDS)
async def unknown_assignor(run: CaseRun) -> None:
    """A join with an unknown ServerAssignor gets UNSUPPORTED_ASSIGNOR."""
    response = await consumer(run).first((await run.topic()).name, server_assignor="none-such")
    equal("ErrorCode", response.error_code, ErrorCode.UNSUPPORTED_ASSIGNOR)


@case_for_each(
    {name: (name,) for name in ("uniform", "range")},
    "groups.consumer.assignor-{name}",
    "KIP-848; ConsumerGroupDescribeResponse.json",
    needs=NEEDS,
)
async def assignor(run: CaseRun, name: str) -> None:
    """A group with the assignor {0} is described with it."""
    topic = await run.topic()
    member = consumer(run)
    response = await member.first(topic.name, server_assignor=name)
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    await run.until(lambda: _is_assigned_by(run, member.group, name), f"AssignorName {name}")


async def _is_assigned_by(run: CaseRun, group: str, name: str) -> bool:
    return bool((await describe(run, group)).assignor_name == name)


@case("groups.consumer.unchanged", HEARTBEAT, needs=NEEDS)
async def unchanged(run: CaseRun) -> None:
    """A heartbeat that changes nothing gets the same epoch and a null assignment."""
    topic = await run.topic()
    member = consumer(run)
    await member.join(topic)
    await member.confirm()
    epoch = member.epoch
    response = await member.heartbeat()
    actual = (response.error_code, response.member_epoch, response.assignment)
    equal("error, epoch and assignment", actual, (0, epoch, None))


@case_for_each(
    {
        "unknown-group": (True, 5, ErrorCode.GROUP_ID_NOT_FOUND),
        "unknown-member": (False, 5, ErrorCode.UNKNOWN_MEMBER_ID),
        "leaving-unknown-member": (False, -1, ErrorCode.UNKNOWN_MEMBER_ID),
    },
    "groups.consumer.{name}",
    HEARTBEAT,
    needs=NEEDS,
)
async def unknown(run: CaseRun, is_new_group: bool, epoch: int, code: ErrorCode) -> None:
    """A heartbeat with epoch {1} of a member that does not exist gets {2.name} ({name})."""
    member = consumer(run)
    await member.join(await run.topic())
    other = consumer(run, None if is_new_group else member.group)
    equal("ErrorCode", (await other.heartbeat(epoch)).error_code, code)


@case("groups.consumer.epoch-too-high", HEARTBEAT, needs=NEEDS)
async def epoch_too_high(run: CaseRun) -> None:
    """An epoch above the member's gets FENCED_MEMBER_EPOCH."""
    member = consumer(run)
    await member.join(await run.topic())
    response = await member.heartbeat(member.epoch + 1)
    equal("ErrorCode", response.error_code, ErrorCode.FENCED_MEMBER_EPOCH)


@case("groups.consumer.leave", HEARTBEAT, needs=NEEDS)
async def leave(run: CaseRun) -> None:
    """Leaving returns epoch -1; after that the member is unknown."""
    member = consumer(run)
    await member.join(await run.topic())
    epoch = member.epoch
    response = await member.heartbeat(-1)
    equal("error and epoch", (response.error_code, response.member_epoch), (0, -1))
    equal("ErrorCode of the old epoch", (await member.heartbeat(epoch)).error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@case("groups.consumer.revoked-before-assigned", "KIP-848 (reconciliation)", needs=NEEDS)
async def reconciliation(run: CaseRun) -> None:
    """Partitions move to a second member only after the first has confirmed their revocation."""
    topic = await run.topic(2)
    first = consumer(run)
    await first.join(topic)
    second = consumer(run, first.group)
    await second.first(topic.name)
    owned = [{"topic_id": topic.topic_id, "partitions": [0, 1]}]

    async def revoked() -> bool:
        await first.heartbeat(topic_partitions=owned)
        return len(first.assigned.get(topic.topic_id, ())) == 1

    await run.until(revoked, "an assignment of one partition")
    equal("assignment of the second before", second.assigned.get(topic.topic_id, []), [])
    await second.heartbeat()
    equal("assignment of the second before the confirmation", second.assigned.get(topic.topic_id, []), [])

    async def moved() -> bool:
        await first.confirm()
        await second.confirm()
        return sorted(first.assigned[topic.topic_id] + second.assigned.get(topic.topic_id, [])) == [0, 1]

    await run.until(moved, "one partition for each")


@case("groups.consumer.missing-topic", HEARTBEAT, needs=NEEDS)
async def missing_topic(run: CaseRun) -> None:
    """A topic that is created after the join is assigned."""
    name = run.name("later")
    member = consumer(run)
    await member.first(name)
    equal("assignment", member.assigned, {})
    topic = await run.cluster.create_topic(await run.connection(), name)

    async def assigned() -> bool:
        await member.confirm()
        return member.assigned == {topic.topic_id: [0]}

    await run.until(assigned, "the assignment")


@case("groups.consumer.static-in-use", "KIP-848 (static members)", needs=NEEDS)
async def static_in_use(run: CaseRun) -> None:
    """A join with the instance id of a present member gets UNRELEASED_INSTANCE_ID."""
    topic = await run.topic()
    member = consumer(run)
    await member.first(topic.name, instance_id="i1")
    response = await consumer(run, member.group).first(topic.name, instance_id="i1")
    equal("ErrorCode", response.error_code, ErrorCode.UNRELEASED_INSTANCE_ID)


@case("groups.consumer.static-replaced", "KIP-848 (static members)", needs=NEEDS)
async def static_replaced(run: CaseRun) -> None:
    """A static member that left with epoch -2 is replaced by a join with its instance id."""
    topic = await run.topic()
    member = consumer(run)
    await member.first(topic.name, instance_id="i1")
    response = await member.heartbeat(-2, instance_id="i1")
    equal("error and epoch", (response.error_code, response.member_epoch), (0, -2))
    response = await consumer(run, member.group).first(topic.name, instance_id="i1")
    equal("ErrorCode", response.error_code, ErrorCode.NONE)


@case(
    "groups.consumer.pattern",
    "KIP-848; ConsumerGroupHeartbeatRequest.json (SubscribedTopicRegex)",
    needs=(*NEEDS, "ConsumerGroupHeartbeat:1"),
)
async def pattern(run: CaseRun) -> None:
    """A member with SubscribedTopicRegex is assigned the topics that match."""
    topic = await run.topic()
    member = consumer(run)
    await member.first(subscribed_topic_names=None, subscribed_topic_regex=f"{topic.name[:-2]}.*")

    async def assigned() -> bool:
        await member.confirm()
        return member.assigned.get(topic.topic_id) == [0]

    await run.until(assigned, "the assignment of the matching topic")


@case(
    "groups.consumer.invalid-pattern",
    "KIP-848; ConsumerGroupHeartbeatRequest.json",
    needs=(*NEEDS, "ConsumerGroupHeartbeat:1"),
)
async def invalid_pattern(run: CaseRun) -> None:
    """An invalid SubscribedTopicRegex gets INVALID_REGULAR_EXPRESSION."""
    response = await consumer(run).first(subscribed_topic_names=None, subscribed_topic_regex="a[")
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REGULAR_EXPRESSION)


async def describe(run: CaseRun, group: str) -> Any:
    """Return the group of a ConsumerGroupDescribe response."""
    response = await run.request("ConsumerGroupDescribe", await run.coordinator(group), group_ids=[group])
    return response.groups[0]


@case("groups.consumer.described", "KIP-848; ConsumerGroupDescribeResponse.json", needs=NEEDS)
async def described(run: CaseRun) -> None:
    """ConsumerGroupDescribe shows state, epochs and the member with its assignment."""
    topic = await run.topic(2)
    member = consumer(run)
    await member.join(topic)
    await member.confirm()
    group = await describe(run, member.group)
    actual = (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch)
    equal("error, state and epochs", actual, (0, "Stable", member.epoch, member.epoch))
    (shown,) = group.members
    equal("member", (shown.member_id, shown.member_epoch), (member.member_id, member.epoch))
    (part,) = shown.assignment.topic_partitions
    equal("assignment", (part.topic_name, sorted(part.partitions)), (topic.name, [0, 1]))


@case("groups.consumer.describe-unknown", "KIP-848", needs=NEEDS)
async def describe_unknown(run: CaseRun) -> None:
    """ConsumerGroupDescribe of an unknown group gets GROUP_ID_NOT_FOUND."""
    equal("ErrorCode", (await describe(run, run.name("none"))).error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case_for_each(
    {
        "right": (0, ErrorCode.NONE),
        "stale": (-1, ErrorCode.STALE_MEMBER_EPOCH),
        "later": (1, ErrorCode.STALE_MEMBER_EPOCH),
    },
    "groups.consumer.commit-{name}",
    "KIP-848; OffsetMetadataManager.validateOffsetCommit",
    needs=(*NEEDS, "OffsetCommit:9"),
)
async def commit(run: CaseRun, difference: int, code: ErrorCode) -> None:
    """OffsetCommit with the member's epoch {0:+d} gets {1.name}."""
    topic = await run.topic()
    member = consumer(run)
    await member.join(topic)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    response = await run.request(
        "OffsetCommit",
        await run.coordinator(member.group),
        9,
        group_id=member.group,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.epoch + difference,
        topics=topics,
    )
    equal("error of the partition", response.topics[0].partitions[0].error_code, code)


@case(
    "groups.consumer.commit-unknown-member",
    "KIP-848; OffsetMetadataManager.validateOffsetCommit",
    needs=(*NEEDS, "OffsetCommit:9"),
)
async def commit_unknown(run: CaseRun) -> None:
    """OffsetCommit of an unknown member gets UNKNOWN_MEMBER_ID."""
    topic = await run.topic()
    member = consumer(run)
    await member.join(topic)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    response = await run.request(
        "OffsetCommit",
        await run.coordinator(member.group),
        9,
        group_id=member.group,
        member_id="nobody",
        generation_id_or_member_epoch=member.epoch,
        topics=topics,
    )
    equal("error of the partition", response.topics[0].partitions[0].error_code, ErrorCode.UNKNOWN_MEMBER_ID)
