"""Cases of members of share groups: heartbeats, epochs, assignment, description, deletion."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import Topic
from kafka_share_proxy.conformance.suite.expectations import equal, one_of, true
from kafka_share_proxy.conformance.suite.share_members import ShareMember, share_group
from kafka_share_proxy.wire.errors import ErrorCode

SHARE = ("share",)
HEARTBEAT = "KIP-932; ShareGroupHeartbeatRequest.json"
CHECKS = "KafkaApis.handleShareGroupHeartbeat, GroupCoordinatorService"
EPOCHS = "KIP-932; GroupMetadataManager.shareGroupHeartbeat"
INTERVAL_MS = 5000
NO_OPERATIONS = -2147483648


async def new_member(run: CaseRun, group: str | None = None) -> ShareMember:
    """A member id that has not joined."""
    return ShareMember(run, group or run.group(), await run.kept(), run.name("m")[-36:])


async def joined(run: CaseRun, topic: Topic, group: str | None = None) -> ShareMember:
    """A member to which all partitions of a topic are assigned."""
    member = await new_member(run, group)
    await member.join(topic)
    return member


@case(
    "share-groups.membership.join",
    "A join is accepted with a positive member epoch, the heartbeat interval and an assignment that is not null.",
    HEARTBEAT,
    needs=SHARE,
)
async def join(run: CaseRun) -> None:
    topic = await run.topic()
    member = await new_member(run)
    run.at_end(member.leave)
    response = await member.heartbeat(0, [topic.name])
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("MemberId", response.member_id, member.member_id)
    true("MemberEpoch", response.member_epoch > 0, "above 0", response.member_epoch)
    equal("HeartbeatIntervalMs", response.heartbeat_interval_ms, INTERVAL_MS)
    true("Assignment", response.assignment is not None, "not null")


@case(
    "share-groups.membership.whole-assignment",
    "A single member is assigned every partition of its topics.",
    "KIP-932; SimpleAssignor",
    needs=SHARE,
)
async def whole_assignment(run: CaseRun) -> None:
    first, second = await run.topic(3), await run.topic(2)
    member = await new_member(run)
    await member.join(first, second)
    equal("assignment", member.assigned, {first.topic_id: [0, 1, 2], second.topic_id: [0, 1]})


@case(
    "share-groups.membership.unchanged-assignment-is-null",
    "A heartbeat that changes nothing gets the same epoch and a null assignment.",
    "KIP-932; ShareGroupHeartbeatResponse.json",
    needs=SHARE,
)
async def unchanged(run: CaseRun) -> None:
    member = await joined(run, await run.topic())
    await member.heartbeat()
    epoch = member.member_epoch
    response = await member.heartbeat()
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("MemberEpoch", response.member_epoch, epoch)
    equal("Assignment", response.assignment, None)


@case(
    "share-groups.membership.topics-named-again",
    "A heartbeat that names its topics again gets its assignment.",
    "KIP-932; ShareGroupHeartbeatResponse.json",
    needs=SHARE,
)
async def topics_named_again(run: CaseRun) -> None:
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
    "A heartbeat with {1} is refused with INVALID_REQUEST.",
    CHECKS,
    needs=SHARE,
)
async def invalid(run: CaseRun, fields: dict[str, Any], _words: str) -> None:
    topic = await run.topic()
    member = await new_member(run)
    response = await member.heartbeat(0, [topic.name], **fields)
    equal("error of the response", response.error_code, ErrorCode.INVALID_REQUEST)
    equal("MemberEpoch", response.member_epoch, 0)


@case(
    "share-groups.membership.unknown-group",
    "A heartbeat with an epoch above 0 in an unknown group gets GROUP_ID_NOT_FOUND.",
    CHECKS,
    needs=SHARE,
    differs={"proxy on 3.9": "a group without state gets 25, after which all clients rejoin (sharegroups rule 10)"},
)
async def unknown_group(run: CaseRun) -> None:
    member = await new_member(run)
    response = await member.heartbeat(5)
    equal("error of the response", response.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case(
    "share-groups.membership.unknown-member",
    "A heartbeat of an unknown member with an epoch above 0 gets UNKNOWN_MEMBER_ID.",
    CHECKS,
    needs=SHARE,
)
async def unknown_member(run: CaseRun) -> None:
    member = await joined(run, await run.topic())
    other = await new_member(run, member.group)
    equal("error of the response", (await other.heartbeat(5)).error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@case(
    "share-groups.membership.leaving-unknown-member",
    "Leaving a group as an unknown member gets UNKNOWN_MEMBER_ID.",
    CHECKS,
    needs=SHARE,
)
async def leaving_unknown_member(run: CaseRun) -> None:
    member = await joined(run, await run.topic())
    other = await new_member(run, member.group)
    equal("error of the response", (await other.heartbeat(-1)).error_code, ErrorCode.UNKNOWN_MEMBER_ID)


@case(
    "share-groups.membership.epoch-too-high",
    "An epoch above the member's gets FENCED_MEMBER_EPOCH; epoch 0 then returns epoch and assignment.",
    EPOCHS,
    needs=SHARE,
)
async def epoch_too_high(run: CaseRun) -> None:
    topic = await run.topic()
    member = await joined(run, topic)
    response = await member.heartbeat(member.member_epoch + 1)
    equal("error of the response", response.error_code, ErrorCode.FENCED_MEMBER_EPOCH)
    response = await member.heartbeat(0, [topic.name])
    equal("error of the second join", response.error_code, ErrorCode.NONE)
    equal("assignment", member.assigned, {topic.topic_id: [0]})


@case(
    "share-groups.membership.previous-epoch",
    "The previous epoch is accepted, because a response may be lost; an older one is fenced.",
    EPOCHS,
    needs=SHARE,
)
async def previous_epoch(run: CaseRun) -> None:
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


async def _advanced(member: ShareMember, epoch: int) -> bool:
    if member.member_epoch <= epoch:
        await member.heartbeat()
    return member.member_epoch > epoch


@case(
    "share-groups.membership.leave",
    "Leaving returns epoch -1 and no assignment; after that the member is unknown, and may join again.",
    "KIP-932; ShareGroupHeartbeatRequest.json (MemberEpoch)",
    needs=SHARE,
)
async def leave(run: CaseRun) -> None:
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


@case(
    "share-groups.membership.balanced",
    "Three partitions and two members: every partition is assigned, and the loads differ by one at most.",
    "KIP-932; SimpleAssignor",
    needs=SHARE,
)
async def balanced(run: CaseRun) -> None:
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


@case(
    "share-groups.membership.one-partition-for-all",
    "One partition and two members: both are assigned it.",
    "KIP-932; SimpleAssignor",
    needs=SHARE,
)
async def one_partition_for_all(run: CaseRun) -> None:
    topic = await run.topic()
    member = await joined(run, topic)
    other = await joined(run, topic, member.group)
    await member.heartbeat()
    equal("assignments", [member.assigned, other.assigned], [{topic.topic_id: [0]}] * 2)


@case(
    "share-groups.membership.changed-subscription",
    "After a changed subscription the assignment has the new topic only.",
    "KIP-932; ShareGroupHeartbeatRequest.json (SubscribedTopicNames)",
    needs=SHARE,
)
async def changed_subscription(run: CaseRun) -> None:
    first, second = await run.topic(), await run.topic(2)
    member = await joined(run, first)
    await member.heartbeat(topics=[second.name])

    async def moved() -> bool:
        await member.heartbeat()
        return member.assigned == {second.topic_id: [0, 1]}

    await run.until(moved, "the assignment of the new topic alone")


@case(
    "share-groups.membership.missing-topic",
    "A join for a topic that does not exist is accepted; once it is created it is assigned.",
    "KIP-932",
    needs=SHARE,
)
async def missing_topic(run: CaseRun) -> None:
    name = run.name("later")
    member = await new_member(run)
    run.at_end(member.leave)
    response = await member.heartbeat(0, [name])
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("assignment", member.assigned, {})
    topic = await run.cluster.create_topic(await run.kept(), name)

    async def assigned() -> bool:
        await member.heartbeat()
        return member.assigned == {topic.topic_id: [0]}

    await run.until(assigned, "the assignment of the new topic")


@case(
    "share-groups.membership.added-partitions",
    "Partitions that are added to a subscribed topic are assigned.",
    "KIP-932; GroupMetadataManager",
    needs=SHARE,
)
async def added_partitions(run: CaseRun) -> None:
    topic = await run.topic()
    member = await joined(run, topic)
    await run.request(
        "CreatePartitions", topics=[{"name": topic.name, "count": 3, "assignments": None}], timeout_ms=9000
    )

    async def grown() -> bool:
        await member.heartbeat()
        return member.assigned == {topic.topic_id: [0, 1, 2]}

    await run.until(grown, "the assignment of three partitions")


@case(
    "share-groups.membership.rack",
    "A join with a rack is accepted, and the rack is described.",
    "ShareGroupHeartbeatRequest.json (RackId)",
    needs=SHARE,
)
async def rack(run: CaseRun) -> None:
    topic = await run.topic()
    member = await new_member(run)
    run.at_end(member.leave)
    equal("error of the join", (await member.heartbeat(0, [topic.name], rack_id="r1")).error_code, ErrorCode.NONE)
    group = await describe(run, member.group)
    equal("RackId", group.members[0].rack_id, "r1")


async def describe(run: CaseRun, group: str, *, operations: bool = False) -> Any:
    """Return the group of a ShareGroupDescribe response."""
    response = await run.request(
        "ShareGroupDescribe",
        await run.coordinator(group),
        group_ids=[group],
        include_authorized_operations=operations,
    )
    equal("number of groups", len(response.groups), 1)
    return response.groups[0]


@case(
    "share-groups.describe.stable",
    "A group with a member is Stable, with assignor simple, equal epochs, and its member with topic ids and names.",
    "KIP-932; ShareGroupDescribeResponse.json",
    needs=SHARE,
)
async def describe_stable(run: CaseRun) -> None:
    topic = await run.topic(2)
    member = await joined(run, topic)
    await member.heartbeat()
    group = await describe(run, member.group)
    equal("ErrorCode", group.error_code, ErrorCode.NONE)
    equal("GroupState", group.group_state, "Stable")
    equal("AssignorName", group.assignor_name, "simple")
    equal("AssignmentEpoch", group.assignment_epoch, group.group_epoch)
    equal("AuthorizedOperations", group.authorized_operations, NO_OPERATIONS)
    (shown,) = group.members
    equal("MemberId", shown.member_id, member.member_id)
    equal("MemberEpoch", shown.member_epoch, member.member_epoch)
    equal("ClientId", shown.client_id, member.connection.client_id)
    true("ClientHost", shown.client_host.startswith("/"), "begins with /", shown.client_host)
    equal("SubscribedTopicNames", list(shown.subscribed_topic_names), [topic.name])
    (part,) = shown.assignment.topic_partitions
    equal("assigned topic", (bytes(part.topic_id), part.topic_name), (topic.topic_id, topic.name))
    equal("assigned partitions", sorted(part.partitions), [0, 1])


@case(
    "share-groups.describe.empty",
    "A group whose last member left is Empty and has no members.",
    "KIP-932; ShareGroup.ShareGroupState",
    needs=SHARE,
)
async def describe_empty(run: CaseRun) -> None:
    member = await joined(run, await run.topic())
    await member.heartbeat(-1)
    group = await describe(run, member.group)
    equal("GroupState", group.group_state, "Empty")
    equal("members", list(group.members), [])


@case(
    "share-groups.describe.unknown",
    "An unknown group gets GROUP_ID_NOT_FOUND.",
    "KIP-932; ShareGroupDescribeResponse.json",
    needs=SHARE,
)
async def describe_unknown(run: CaseRun) -> None:
    group = await describe(run, run.name("no-group"))
    equal("ErrorCode", group.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case(
    "share-groups.describe.empty-id",
    "An empty group id gets INVALID_GROUP_ID.",
    "GroupCoordinatorService.shareGroupDescribe",
    needs=SHARE,
)
async def describe_empty_id(run: CaseRun) -> None:
    response = await run.request("ShareGroupDescribe", group_ids=[""])
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.INVALID_GROUP_ID)


@case(
    "share-groups.describe.operations",
    "AuthorizedOperations are in the response only if they are requested.",
    "KIP-430; ShareGroupDescribeRequest.json",
    needs=SHARE,
)
async def describe_operations(run: CaseRun) -> None:
    group = await share_group(run, await run.topic())
    shown = await describe(run, group, operations=True)
    true("AuthorizedOperations", shown.authorized_operations > 0, "a set of operations", shown.authorized_operations)
    equal("without the request", (await describe(run, group)).authorized_operations, NO_OPERATIONS)


@case(
    "share-groups.describe.classic-description",
    "DescribeGroups v5 describes a share group as Dead, without an error.",
    "GroupMetadataManager.describeGroups",
    needs=SHARE,
)
async def classic_description(run: CaseRun) -> None:
    group = await share_group(run, await run.topic())
    response = await run.request("DescribeGroups", await run.coordinator(group), groups=[group], version=5)
    equal("GroupState", response.groups[0].group_state, "Dead")
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.NONE)


@case_for_each(
    {"all": ({},), "types": ({"types_filter": ["share"]},), "upper-case": ({"types_filter": ["Share"]},)},
    "share-groups.list.{name}",
    "ListGroups v5 with {0} lists the group with type share and protocol share.",
    "KIP-932; ListGroupsResponse.json",
    needs=SHARE,
)
async def list_groups(run: CaseRun, filters: dict[str, Any]) -> None:
    group = await share_group(run, await run.topic())
    response = await run.request("ListGroups", await run.coordinator(group), version=5, **filters)
    (listed,) = [each for each in response.groups if each.group_id == group]
    equal("GroupType", listed.group_type.lower(), "share")
    equal("ProtocolType", listed.protocol_type, "share")
    equal("GroupState", listed.group_state, "Empty")


@case_for_each(
    {"state": ({"states_filter": ["Stable"]},), "type": ({"types_filter": ["classic"]},)},
    "share-groups.list.not-by-other-{name}",
    "ListGroups v5 with {0} does not list an empty share group.",
    "KIP-518, KIP-848; ListGroupsRequest.json",
    needs=SHARE,
)
async def list_not(run: CaseRun, filters: dict[str, Any]) -> None:
    group = await share_group(run, await run.topic())
    response = await run.request("ListGroups", await run.coordinator(group), version=5, **filters)
    equal("listed", [each.group_id for each in response.groups if each.group_id == group], [])


@case(
    "share-groups.delete.non-empty",
    "DeleteGroups refuses a group with members with NON_EMPTY_GROUP.",
    "KIP-932; GroupMetadataManager",
    needs=SHARE,
)
async def delete_non_empty(run: CaseRun) -> None:
    member = await joined(run, await run.topic())
    response = await run.request("DeleteGroups", await run.coordinator(member.group), groups_names=[member.group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NON_EMPTY_GROUP)


@case(
    "share-groups.delete.empty",
    "DeleteGroups deletes an empty group: after that it is unknown, and its offsets are gone.",
    "KIP-932; GroupMetadataManager",
    needs=SHARE,
)
async def delete_empty(run: CaseRun) -> None:
    topic = await run.topic()
    group = await share_group(run, topic)
    coordinator = await run.coordinator(group)
    response = await run.request("DeleteGroups", coordinator, groups_names=[group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NONE)
    equal("ErrorCode of the description", (await describe(run, group)).error_code, ErrorCode.GROUP_ID_NOT_FOUND)
    response = await run.request("DeleteGroups", coordinator, groups_names=[group])
    equal("ErrorCode of a second deletion", response.results[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case(
    "share-groups.types.heartbeat-in-a-classic-group",
    "A share heartbeat in a classic group gets GROUP_ID_NOT_FOUND.",
    "KIP-932; GroupMetadataManager (one id, one type)",
    needs=SHARE,
)
async def heartbeat_in_classic_group(run: CaseRun) -> None:
    topic = await run.topic()
    group = run.group()
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
    coordinator = await run.coordinator(group)
    committed = await run.request(
        "OffsetCommit", coordinator, group_id=group, generation_id_or_member_epoch=-1, topics=topics
    )
    equal("error of the commit", committed.topics[0].partitions[0].error_code, ErrorCode.NONE)
    response = await (await new_member(run, group)).heartbeat(0, [topic.name])
    equal("error of the response", response.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case(
    "share-groups.types.classic-join",
    "JoinGroup in a share group gets INCONSISTENT_GROUP_PROTOCOL.",
    "GroupMetadataManager.classicGroupJoin",
    needs=SHARE,
)
async def classic_join(run: CaseRun) -> None:
    group = await share_group(run, await run.topic())
    response = await run.request(
        "JoinGroup",
        await run.coordinator(group),
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
        version=3,
    )
    equal("ErrorCode", response.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@case(
    "share-groups.types.offset-commit",
    "OffsetCommit in a share group gets GROUP_ID_NOT_FOUND.",
    "OffsetMetadataManager.validateOffsetCommit",
    needs=SHARE,
)
async def offset_commit(run: CaseRun) -> None:
    topic = await run.topic()
    group = await share_group(run, topic)
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0, "committed_offset": 0}]}]
    response = await run.request(
        "OffsetCommit",
        await run.coordinator(group),
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=topics,
    )
    one_of(
        "error of the partition", response.topics[0].partitions[0].error_code,
        [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION],
    )  # fmt: skip


@case(
    "share-groups.types.consumer-description",
    "ConsumerGroupDescribe of a share group gets GROUP_ID_NOT_FOUND.",
    "KIP-848; GroupMetadataManager",
    needs=(*SHARE, "consumer-groups"),
)
async def consumer_description(run: CaseRun) -> None:
    group = await share_group(run, await run.topic())
    response = await run.request("ConsumerGroupDescribe", await run.coordinator(group), group_ids=[group])
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)
