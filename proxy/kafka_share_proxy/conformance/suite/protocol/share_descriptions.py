"""Cases of the description, list, deletion and type of share groups."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import PROXY
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.expectations import equal, one_of, true
from kafka_share_proxy.conformance.suite.placed_topics import NEEDS as SEVERAL_NODES
from kafka_share_proxy.conformance.suite.protocol.share_membership import NO_OPERATIONS, joined, new_member
from kafka_share_proxy.conformance.suite.share_members import SHARE, share_group
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import Address

LISTED_GROUPS = 4
"""Groups of the case about the listing node: a node chosen otherwise is not the coordinator of all of them."""


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


@case("share-groups.describe.stable", "KIP-932; ShareGroupDescribeResponse.json", needs=SHARE)
async def describe_stable(run: CaseRun) -> None:
    """A group with a member is Stable, with assignor simple, equal epochs, and its member with topic ids and names."""
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


@case("share-groups.describe.empty", "KIP-932; ShareGroup.ShareGroupState", needs=SHARE)
async def describe_empty(run: CaseRun) -> None:
    """A group whose last member left is Empty and has no members."""
    member = await joined(run, await run.topic())
    await member.heartbeat(-1)
    group = await describe(run, member.group)
    equal("GroupState", group.group_state, "Empty")
    equal("members", list(group.members), [])


@case("share-groups.describe.unknown", "KIP-932; ShareGroupDescribeResponse.json", needs=SHARE)
async def describe_unknown(run: CaseRun) -> None:
    """An unknown group gets GROUP_ID_NOT_FOUND."""
    group = await describe(run, run.name("no-group"))
    equal("ErrorCode", group.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case("share-groups.describe.empty-id", "GroupCoordinatorService.shareGroupDescribe", needs=SHARE)
async def describe_empty_id(run: CaseRun) -> None:
    """An empty group id gets INVALID_GROUP_ID."""
    response = await run.request("ShareGroupDescribe", group_ids=[""])
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.INVALID_GROUP_ID)


@case("share-groups.describe.operations", "KIP-430; ShareGroupDescribeRequest.json", needs=SHARE)
async def describe_operations(run: CaseRun) -> None:
    """AuthorizedOperations are in the response only if they are requested."""
    group = await share_group(run, await run.topic())
    shown = await describe(run, group, operations=True)
    true("AuthorizedOperations", shown.authorized_operations > 0, "a set of operations", shown.authorized_operations)
    equal("without the request", (await describe(run, group)).authorized_operations, NO_OPERATIONS)


@case("share-groups.describe.classic-description", "GroupMetadataManager.describeGroups", needs=SHARE)
async def classic_description(run: CaseRun) -> None:
    """DescribeGroups v5 describes a share group as Dead, without an error."""
    group = await share_group(run, await run.topic())
    response = await run.request("DescribeGroups", await run.coordinator(group), groups=[group], version=5)
    equal("GroupState", response.groups[0].group_state, "Dead")
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.NONE)


async def _listings(run: CaseRun, group: str, filters: dict[str, Any]) -> list[tuple[Address, Any]]:
    """Return the entries of the group in the lists of all nodes, with the node's address."""
    listings = []
    for address in (await run.cluster.brokers(await run.connection())).values():
        response = await run.request("ListGroups", await run.connection(address), version=5, **filters)
        equal("error of the list", response.error_code, ErrorCode.NONE)
        listings += [(address, each) for each in response.groups if each.group_id == group]
    return listings


@case(
    "share-groups.list.at-the-coordinator",
    "GroupCoordinatorService.listGroups",
    needs=(*SHARE, SEVERAL_NODES),
    differs={PROXY: "each group is listed by one listener, chosen by a hash (conformance/README.md rule 45)"},
)
async def list_at_the_coordinator(run: CaseRun) -> None:
    """A share group is listed by its coordinator."""
    topic = await run.topic()
    for _ in range(LISTED_GROUPS):
        group = await share_group(run, topic)
        listed_at = [address for address, _ in await _listings(run, group, {})]
        equal("nodes that list the group", listed_at, [(await run.coordinator(group)).address])


@case_for_each(
    {"all": ({},), "types": ({"types_filter": ["share"]},), "upper-case": ({"types_filter": ["Share"]},)},
    "share-groups.list.{name}",
    "KIP-932; ListGroupsResponse.json; KafkaAdminClient.listGroups merges the lists of all nodes",
    needs=SHARE,
)
async def list_groups(run: CaseRun, filters: dict[str, Any]) -> None:
    """ListGroups v5 with {0} lists the group at one node only, with type share and protocol share."""
    group = await share_group(run, await run.topic())
    (listed,) = [each for _, each in await _listings(run, group, filters)]
    equal("GroupType", listed.group_type.lower(), "share")
    equal("ProtocolType", listed.protocol_type, "share")
    equal("GroupState", listed.group_state, "Empty")


@case_for_each(
    {"state": ({"states_filter": ["Stable"]},), "type": ({"types_filter": ["classic"]},)},
    "share-groups.list.not-by-other-{name}",
    "KIP-518, KIP-848; ListGroupsRequest.json",
    needs=SHARE,
)
async def list_not(run: CaseRun, filters: dict[str, Any]) -> None:
    """ListGroups v5 with {0} does not list an empty share group."""
    group = await share_group(run, await run.topic())
    equal("listed", [each.group_id for _, each in await _listings(run, group, filters)], [])


@case("share-groups.delete.non-empty", "KIP-932; GroupMetadataManager", needs=SHARE)
async def delete_non_empty(run: CaseRun) -> None:
    """DeleteGroups refuses a group with members with NON_EMPTY_GROUP."""
    member = await joined(run, await run.topic())
    response = await run.request("DeleteGroups", await run.coordinator(member.group), groups_names=[member.group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NON_EMPTY_GROUP)


@case("share-groups.delete.empty", "KIP-932; GroupMetadataManager", needs=SHARE)
async def delete_empty(run: CaseRun) -> None:
    """DeleteGroups deletes an empty group: after that it is unknown, and its offsets are gone."""
    topic = await run.topic()
    group = await share_group(run, topic)
    coordinator = await run.coordinator(group)
    response = await run.request("DeleteGroups", coordinator, groups_names=[group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NONE)
    equal("ErrorCode of the description", (await describe(run, group)).error_code, ErrorCode.GROUP_ID_NOT_FOUND)
    response = await run.request("DeleteGroups", coordinator, groups_names=[group])
    equal("ErrorCode of a second deletion", response.results[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case(
    "share-groups.types.heartbeat-in-a-classic-group", "KIP-932; GroupMetadataManager (one id, one type)", needs=SHARE
)
async def heartbeat_in_classic_group(run: CaseRun) -> None:
    """A share heartbeat in a classic group gets GROUP_ID_NOT_FOUND."""
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


@case("share-groups.types.classic-join", "GroupMetadataManager.classicGroupJoin", needs=SHARE)
async def classic_join(run: CaseRun) -> None:
    """JoinGroup in a share group gets INCONSISTENT_GROUP_PROTOCOL."""
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


@case("share-groups.types.offset-commit", "OffsetMetadataManager.validateOffsetCommit", needs=SHARE)
async def offset_commit(run: CaseRun) -> None:
    """OffsetCommit in a share group gets GROUP_ID_NOT_FOUND."""
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


@case("share-groups.types.consumer-description", "KIP-848; GroupMetadataManager", needs=(*SHARE, "consumer-groups"))
async def consumer_description(run: CaseRun) -> None:
    """ConsumerGroupDescribe of a share group gets GROUP_ID_NOT_FOUND."""
    group = await share_group(run, await run.topic())
    response = await run.request("ConsumerGroupDescribe", await run.coordinator(group), group_ids=[group])
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case("share-groups.membership.rack", "ShareGroupHeartbeatRequest.json (RackId)", needs=SHARE)
async def rack(run: CaseRun) -> None:
    """A join with a rack is accepted, and the rack is described."""
    topic = await run.topic()
    member = await new_member(run)
    run.at_end(member.leave)
    equal("error of the join", (await member.heartbeat(0, [topic.name], rack_id="r1")).error_code, ErrorCode.NONE)
    group = await describe(run, member.group)
    equal("RackId", group.members[0].rack_id, "r1")
