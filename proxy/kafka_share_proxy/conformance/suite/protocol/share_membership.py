"""Cases of members of share groups: heartbeats, epochs, assignment, description, deletion."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import PROXY
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.share_members import SHARE, ShareSessionMember
from kafka_share_proxy.wire.errors import ErrorCode

HEARTBEAT = "KIP-932; ShareGroupHeartbeatRequest.json"
CHECKS = "KafkaApis.handleShareGroupHeartbeat, GroupCoordinatorService"
EPOCHS = "KIP-932; GroupMetadataManager.shareGroupHeartbeat"
INTERVAL_MS = 5000
NO_OPERATIONS = -2147483648


async def new_member(run: CaseRun, group: str | None = None) -> ShareSessionMember:
    """A member id that has not joined."""
    return ShareSessionMember(run, group or run.group(), await run.connection(), run.name("m")[-36:])


async def joined(run: CaseRun, topic: CaseTopic, group: str | None = None) -> ShareSessionMember:
    """A member to which all partitions of a topic are assigned."""
    member = await new_member(run, group)
    await member.join(topic)
    return member


@case("share-groups.membership.join", HEARTBEAT, needs=SHARE)
async def join(run: CaseRun) -> None:
    """A join is accepted with a positive member epoch, the heartbeat interval and an assignment that is not null."""
    topic = await run.topic()
    member = await new_member(run)
    run.at_end(member.leave)
    response = await member.heartbeat(0, [topic.name])
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("MemberId", response.member_id, member.member_id)
    true("MemberEpoch", response.member_epoch > 0, "above 0", response.member_epoch)
    equal("HeartbeatIntervalMs", response.heartbeat_interval_ms, INTERVAL_MS)
    true("Assignment", response.assignment is not None, "not null")


@case("share-groups.membership.whole-assignment", "KIP-932; SimpleAssignor", needs=SHARE)
async def whole_assignment(run: CaseRun) -> None:
    """A single member is assigned every partition of its topics."""
    first, second = await run.topic(3), await run.topic(2)
    member = await new_member(run)
    await member.join(first, second)
    equal("assignment", member.assigned, {first.topic_id: [0, 1, 2], second.topic_id: [0, 1]})


@case("share-groups.membership.unchanged-assignment-is-null", "KIP-932; ShareGroupHeartbeatResponse.json", needs=SHARE)
async def unchanged(run: CaseRun) -> None:
    """A heartbeat that changes nothing gets the same epoch and a null assignment."""
    member = await joined(run, await run.topic())
    await member.heartbeat()
    epoch = member.member_epoch
    response = await member.heartbeat()
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("MemberEpoch", response.member_epoch, epoch)
    equal("Assignment", response.assignment, None)


@case("share-groups.membership.topics-named-again", "KIP-932; ShareGroupHeartbeatResponse.json", needs=SHARE)
async def topics_named_again(run: CaseRun) -> None:
    """A heartbeat that names its topics again gets its assignment."""
    topic = await run.topic(2)
    member = await joined(run, topic)
    response = await member.heartbeat(topics=[topic.name])
    equal("error of the response", response.error_code, ErrorCode.NONE)
    true("Assignment", response.assignment is not None, "not null")
    equal("assignment", member.assigned, {topic.topic_id: [0, 1]})


BAD_HEARTBEATS: dict[str, tuple[dict[str, Any], str]] = {
    "empty-member-id": ({"member_id": ""}, "an empty MemberId"),
    "member-id-37": ({"member_id": "m" * 37}, "a MemberId of 37 characters"),
    "empty-group": ({"group_id": ""}, "an empty GroupId"),
    "empty-rack": ({"rack_id": ""}, "an empty RackId"),
    "epoch-minus-2": ({"member_epoch": -2}, "epoch -2"),
    "join-null-topics": ({"subscribed_topic_names": None}, "epoch 0 and null topics"),
    "join-no-topics": ({"subscribed_topic_names": []}, "epoch 0 and no topic"),
}


@case_for_each(
    {name: (fields, words) for name, (fields, words) in BAD_HEARTBEATS.items()},
    "share-groups.membership.invalid-{name}",
    CHECKS,
    needs=SHARE,
)
async def invalid(run: CaseRun, fields: dict[str, Any], _words: str) -> None:
    """A heartbeat with {1} is refused with INVALID_REQUEST."""
    topic = await run.topic()
    member = await new_member(run)
    response = await member.heartbeat(0, [topic.name], **fields)
    equal("error of the response", response.error_code, ErrorCode.INVALID_REQUEST)
    equal("MemberEpoch", response.member_epoch, 0)


@case(
    "share-groups.membership.unknown-group",
    CHECKS,
    needs=SHARE,
    differs={PROXY: "a group without state gets 25, and clients rejoin (sharegroups/README.md rule 10)"},
)
async def unknown_group(run: CaseRun) -> None:
    """A heartbeat with an epoch above 0 in an unknown group gets GROUP_ID_NOT_FOUND."""
    member = await new_member(run)
    response = await member.heartbeat(5)
    equal("error of the response", response.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case("share-groups.membership.unknown-member", CHECKS, needs=SHARE)
async def unknown_member(run: CaseRun) -> None:
    """A heartbeat of an unknown member with an epoch above 0 gets UNKNOWN_MEMBER_ID."""
    member = await joined(run, await run.topic())
    other = await new_member(run, member.group)
    equal("error of the response", (await other.heartbeat(5)).error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@case("share-groups.membership.leaving-unknown-member", CHECKS, needs=SHARE)
async def leaving_unknown_member(run: CaseRun) -> None:
    """Leaving a group as an unknown member gets UNKNOWN_MEMBER_ID."""
    member = await joined(run, await run.topic())
    other = await new_member(run, member.group)
    equal("error of the response", (await other.heartbeat(-1)).error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@case("share-groups.membership.epoch-too-high", EPOCHS, needs=SHARE)
async def epoch_too_high(run: CaseRun) -> None:
    """An epoch above the member's gets FENCED_MEMBER_EPOCH; epoch 0 then returns epoch and assignment."""
    topic = await run.topic()
    member = await joined(run, topic)
    response = await member.heartbeat(member.member_epoch + 1)
    equal("error of the response", response.error_code, ErrorCode.FENCED_MEMBER_EPOCH)
    response = await member.heartbeat(0, [topic.name])
    equal("error of the second join", response.error_code, ErrorCode.NONE)
    equal("assignment", member.assigned, {topic.topic_id: [0]})


@case("share-groups.membership.previous-epoch", EPOCHS, needs=SHARE)
async def previous_epoch(run: CaseRun) -> None:
    """The previous epoch is accepted, because a response may be lost; an older one is fenced."""
    first, second = await run.topic(), await run.topic()
    member = await joined(run, first)
    epochs = [member.member_epoch]
    for names in ([first.name, second.name], [second.name]):
        await member.heartbeat(topics=names)
        await run.until(lambda: _advanced(member, epochs[-1]), "a higher epoch")
        epochs.append(member.member_epoch)
    equal("error of the previous epoch", (await member.heartbeat(epochs[1])).error_code, ErrorCode.NONE)
    response = await member.heartbeat(epochs[0])
    equal("error of an older epoch", response.error_code, ErrorCode.FENCED_MEMBER_EPOCH)


async def _advanced(member: ShareSessionMember, epoch: int) -> bool:
    if member.member_epoch <= epoch:
        await member.heartbeat()
    return member.member_epoch > epoch


@case("share-groups.membership.leave", "KIP-932; ShareGroupHeartbeatRequest.json (MemberEpoch)", needs=SHARE)
async def leave(run: CaseRun) -> None:
    """Leaving returns epoch -1 and no assignment; after that the member is unknown, and may join again."""
    topic = await run.topic()
    member = await joined(run, topic)
    epoch = member.member_epoch
    response = await member.heartbeat(-1)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("MemberEpoch", response.member_epoch, -1)
    equal("Assignment", response.assignment, None)
    equal("error of the old epoch", (await member.heartbeat(epoch)).error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    response = await member.heartbeat(0, [topic.name])
    equal("error of the second join", response.error_code, ErrorCode.NONE)


@case("share-groups.membership.balanced", "KIP-932; SimpleAssignor", needs=SHARE)
async def balanced(run: CaseRun) -> None:
    """Three partitions and two members: every partition is assigned, and the loads differ by one at most."""
    topic = await run.topic(3)
    members = [await joined(run, topic)]
    members.append(await new_member(run, members[0].group))
    run.at_end(members[1].leave)
    await members[1].heartbeat(0, [topic.name])

    async def is_balanced() -> bool:
        for each in members:
            await each.heartbeat()
        loads = [set(each.assigned.get(topic.topic_id, ())) for each in members]
        return set().union(*loads) == {0, 1, 2} and abs(len(loads[0]) - len(loads[1])) <= 1

    await run.until(is_balanced, "balanced assignments")


@case("share-groups.membership.one-partition-for-all", "KIP-932; SimpleAssignor", needs=SHARE)
async def one_partition_for_all(run: CaseRun) -> None:
    """One partition and two members: both are assigned it."""
    topic = await run.topic()
    member = await joined(run, topic)
    other = await joined(run, topic, member.group)
    await member.heartbeat()
    equal("assignments", [member.assigned, other.assigned], [{topic.topic_id: [0]}] * 2)


@case(
    "share-groups.membership.changed-subscription",
    "KIP-932; ShareGroupHeartbeatRequest.json (SubscribedTopicNames)",
    needs=SHARE,
)
async def changed_subscription(run: CaseRun) -> None:
    """After a changed subscription the assignment has the new topic only."""
    first, second = await run.topic(), await run.topic(2)
    member = await joined(run, first)
    await member.heartbeat(topics=[second.name])

    async def moved() -> bool:
        await member.heartbeat()
        return member.assigned == {second.topic_id: [0, 1]}

    await run.until(moved, "the assignment of the new topic alone")


@case("share-groups.membership.missing-topic", "KIP-932", needs=SHARE)
async def missing_topic(run: CaseRun) -> None:
    """A join for a topic that does not exist is accepted; once it is created it is assigned."""
    name = run.name("later")
    member = await new_member(run)
    run.at_end(member.leave)
    response = await member.heartbeat(0, [name])
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("assignment", member.assigned, {})
    topic = await run.cluster.create_topic(await run.connection(), name)

    async def assigned() -> bool:
        await member.heartbeat()
        return member.assigned == {topic.topic_id: [0]}

    await run.until(assigned, "the assignment of the new topic")


@case("share-groups.membership.added-partitions", "KIP-932; GroupMetadataManager", needs=SHARE)
async def added_partitions(run: CaseRun) -> None:
    """Partitions that are added to a subscribed topic are assigned."""
    topic = await run.topic()
    member = await joined(run, topic)
    await run.request(
        "CreatePartitions", topics=[{"name": topic.name, "count": 3, "assignments": None}], timeout_ms=9000
    )

    async def grown() -> bool:
        await member.heartbeat()
        return member.assigned == {topic.topic_id: [0, 1, 2]}

    await run.until(grown, "the assignment of three partitions")
