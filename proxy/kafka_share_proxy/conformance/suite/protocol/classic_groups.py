"""Cases of classic groups: join, synchronise, heartbeat, leave, static members, description."""

from __future__ import annotations

from typing import Any

import trio

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.classic_members import (
    ClassicGroupClient,
    classic_member,
    second_member,
    stable_member,
)
from kafka_share_proxy.conformance.suite.expectations import equal, one_of, true
from kafka_share_proxy.wire.errors import ErrorCode

GROUP = "JoinGroupRequest.json; GroupMetadataManager.classicGroupJoin"
SYNC = "SyncGroupRequest.json; GroupMetadataManager.classicGroupSync"
STATIC = "KIP-345"


@case("groups.classic.member-id-required", "KIP-394; JoinGroupResponse.json")
async def member_id_required(run: CaseRun) -> None:
    """A first join without a member id gets MEMBER_ID_REQUIRED and a member id; the second is accepted with it."""
    member = await classic_member(run)
    response = await member.try_join()
    equal("error of the first join", response.error_code, ErrorCode.MEMBER_ID_REQUIRED)
    true("MemberId", response.member_id, "not empty", response.member_id)
    member_id = response.member_id
    response = await member.try_join()
    equal("error of the second join", response.error_code, ErrorCode.NONE)
    equal("MemberId", response.member_id, member_id)
    await member.leave()


@case("groups.classic.first-generation", GROUP)
async def first_generation(run: CaseRun) -> None:
    """The only member is leader of generation 1, and its own metadata is listed."""
    member = await classic_member(run)
    response = await member.join([("range", b"mine")])
    equal("GenerationId", response.generation_id, 1)
    equal("Leader", response.leader, member.member_id)
    equal("ProtocolName", response.protocol_name, "range")
    listed = [(each.member_id, bytes(each.metadata)) for each in response.members]
    equal("Members", listed, [(member.member_id, b"mine")])


@case_for_each(
    {
        "empty-group": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        "unknown-member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        "short-session": ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        "long-session": ({"session_timeout_ms": 2_000_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        "no-protocols": ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        "no-protocol-type": ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    },
    "groups.classic.join-{name}",
    GROUP,
)
async def bad_join(run: CaseRun, fields: dict[str, Any], code: ErrorCode) -> None:
    """JoinGroup with {0} gets {1.name}."""
    member = await classic_member(run)
    equal("ErrorCode", (await member.try_join(**fields)).error_code, code)


@case_for_each(
    {
        "protocol-type": ({"protocol_type": "connect"},),
        "protocol": ({"protocols": [("other", b"")]},),
    },
    "groups.classic.inconsistent-{name}",
    GROUP,
)
async def inconsistent(run: CaseRun, fields: dict[str, Any]) -> None:
    """A join with another {name} than the group's members gets INCONSISTENT_GROUP_PROTOCOL."""
    member = await stable_member(run)
    other = await classic_member(run, member.group)
    response = await other.try_join(**fields)
    equal("ErrorCode", response.error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@case("groups.classic.protocol-of-all", "GroupMetadata.selectProtocol")
async def protocol_of_all(run: CaseRun) -> None:
    """The group's protocol is one that all members support."""
    first = await classic_member(run)
    await first.join([("a", b"1"), ("b", b"2")])
    await first.sync([(first.member_id, b"")])
    second = await classic_member(run, first.group)
    actual = []

    async def join_second() -> None:
        actual.append((await second.join([("b", b"3"), ("c", b"4")])).protocol_name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join_second)
        await run.until(lambda: _rebalances(first), "a rebalance")
        response = await first.try_join([("a", b"1"), ("b", b"2")])
        actual.append(response.protocol_name)
    equal("protocols of both responses", actual, ["b", "b"])


async def _rebalances(member: ClassicGroupClient) -> bool:
    return await member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@case("groups.classic.second-generation", GROUP)
async def second_generation(run: CaseRun) -> None:
    """A second member begins generation 2; only the leader gets the list of members."""
    first = await stable_member(run)
    second = await classic_member(run, first.group)
    responses: dict[str, Any] = {}

    async def join_second() -> None:
        responses["second"] = await second.join()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join_second)
        await run.until(lambda: _rebalances(first), "a rebalance")
        responses["first"] = await first.try_join()
    equal("generations", [each.generation_id for each in responses.values()], [2, 2])
    equal("leaders", {each.leader for each in responses.values()}, {first.member_id})
    listed = sorted(each.member_id for each in responses["first"].members)
    equal("members for the leader", listed, sorted([first.member_id, second.member_id]))
    equal("members for the other", list(responses["second"].members), [])


@case("groups.classic.assignments", SYNC)
async def assignments(run: CaseRun) -> None:
    """Each member gets from SyncGroup the assignment that the leader gave for it."""
    first = await stable_member(run)
    second = await second_member(run, first)
    member_assignments = [(first.member_id, b"one"), (second.member_id, b"two")]
    actual: dict[str, bytes] = {}

    async def sync_second() -> None:
        actual["second"] = bytes((await second.sync()).assignment)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync_second)
        actual["first"] = bytes((await first.sync(member_assignments)).assignment)
    equal("assignments", actual, {"first": b"one", "second": b"two"})


@case("groups.classic.assignment-again", SYNC)
async def assignment_again(run: CaseRun) -> None:
    """A SyncGroup in a stable group returns the same assignment."""
    member = await stable_member(run)
    response = await member.sync()
    equal("error and assignment", (response.error_code, bytes(response.assignment)), (0, b"all"))


@case_for_each(
    {
        "generation": ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        "member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        "group": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    },
    "groups.classic.sync-wrong-{name}",
    SYNC,
)
async def bad_sync(run: CaseRun, fields: dict[str, Any], code: ErrorCode) -> None:
    """SyncGroup with {0} gets {1.name}."""
    member = await stable_member(run)
    equal("ErrorCode", (await member.sync(**fields)).error_code, code)


@case_for_each(
    {"type": ({"protocol_type": "connect"},), "name": ({"protocol_name": "other"},)},
    "groups.classic.sync-inconsistent-{name}",
    "KIP-559; SyncGroupRequest.json",
    needs=("SyncGroup:5",),
)
async def inconsistent_sync(run: CaseRun, fields: dict[str, Any]) -> None:
    """SyncGroup v5 with {0} gets INCONSISTENT_GROUP_PROTOCOL."""
    member = await stable_member(run)
    full: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} | fields
    equal("ErrorCode", (await member.sync(**full)).error_code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@case_for_each(
    {
        "right": ({}, ErrorCode.NONE),
        "generation": ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        "member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        "group": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    },
    "groups.classic.heartbeat-{name}",
    "HeartbeatRequest.json; GroupMetadataManager.classicGroupHeartbeat",
)
async def heartbeat(run: CaseRun, fields: dict[str, Any], code: ErrorCode) -> None:
    """A Heartbeat with {0} in a stable group gets {1.name}."""
    member = await stable_member(run)
    equal("ErrorCode", await member.heartbeat(**fields), code)


@case("groups.classic.heartbeat-unknown-group", "GroupMetadataManager.classicGroupHeartbeat")
async def heartbeat_unknown_group(run: CaseRun) -> None:
    """A Heartbeat in an unknown group gets UNKNOWN_MEMBER_ID."""
    member = await classic_member(run)
    member.member_id, member.generation = "nobody", 1
    equal("ErrorCode", await member.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)


@case("groups.classic.heartbeat-of-rebalance", "HeartbeatResponse.json")
async def heartbeat_of_rebalance(run: CaseRun) -> None:
    """While another member joins, a heartbeat gets REBALANCE_IN_PROGRESS."""
    first = await stable_member(run)
    second = await classic_member(run, first.group)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join)
        await run.until(lambda: _rebalances(first), "REBALANCE_IN_PROGRESS")
        await first.leave()


@case("groups.classic.leave", "LeaveGroupResponse.json")
async def leave(run: CaseRun) -> None:
    """A member that left is unknown; the group becomes Empty."""
    member = await stable_member(run)
    response = await member.leave()
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    equal("error of the member", response.members[0].error_code, ErrorCode.NONE)
    equal("error of a heartbeat", await member.heartbeat(), ErrorCode.UNKNOWN_MEMBER_ID)
    equal("GroupState", (await describe(run, member.group)).group_state, "Empty")


@case("groups.classic.leave-unknown-member", "KIP-345; LeaveGroupResponse.json")
async def leave_unknown(run: CaseRun) -> None:
    """LeaveGroup of an unknown member gets UNKNOWN_MEMBER_ID for that member."""
    member = await stable_member(run)
    response = await member.leave(member_id="nobody")
    equal("error of the member", response.members[0].error_code, ErrorCode.UNKNOWN_MEMBER_ID)
    equal("error of a heartbeat", await member.heartbeat(), ErrorCode.NONE)


@case("groups.classic.rejoin-follower", "GroupMetadataManager.classicGroupJoin")
async def rejoin_leader(run: CaseRun) -> None:
    """A leader that joins again begins a rebalance; a stable follower gets the present generation."""
    member = await stable_member(run)
    response = await member.try_join()
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    equal("GenerationId", response.generation_id, 2)


# Static members


@case("groups.static.join-at-once", STATIC)
async def static_join(run: CaseRun) -> None:
    """A static member joins with its first request, without a member id."""
    member = await classic_member(run, instance_id="i1")
    response = await member.try_join()
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    equal("GroupInstanceId", response.members[0].group_instance_id, "i1")
    await member.leave()


@case("groups.static.replaced", STATIC)
async def static_replaced(run: CaseRun) -> None:
    """A join with a used instance id replaces its member without a rebalance: the old member id is fenced."""
    first = await stable_member(run, instance_id="i1")
    second = await classic_member(run, first.group, "i1")
    response = await second.join()
    equal("GenerationId", response.generation_id, first.generation)
    true("MemberId", second.member_id != first.member_id, "a new one", second.member_id)
    equal("error of the old member", await first.heartbeat(), ErrorCode.FENCED_INSTANCE_ID)
    response = await second.sync()
    equal("assignment", bytes(response.assignment), b"all")


@case_for_each(
    {"heartbeat": ("Heartbeat",), "sync": ("SyncGroup",), "join": ("JoinGroup",)}, "groups.static.fenced-{name}", STATIC
)
async def static_fenced(run: CaseRun, api: str) -> None:
    """{0} with an instance id and another member id than its present one gets FENCED_INSTANCE_ID."""
    member = await stable_member(run, instance_id="i1")
    if api == "Heartbeat":
        code = await member.heartbeat(member_id="other")
    elif api == "SyncGroup":
        code = (await member.sync(member_id="other")).error_code
    else:
        code = (await member.try_join(member_id="other")).error_code
    equal("ErrorCode", code, ErrorCode.FENCED_INSTANCE_ID)


@case("groups.static.unknown-instance", STATIC)
async def static_unknown(run: CaseRun) -> None:
    """A Heartbeat with an unknown instance id gets UNKNOWN_MEMBER_ID."""
    member = await stable_member(run, instance_id="i1")
    equal("ErrorCode", await member.heartbeat(group_instance_id="i2"), ErrorCode.UNKNOWN_MEMBER_ID)


@case("groups.static.removed-by-instance", "KIP-345; LeaveGroupRequest.json")
async def static_removed(run: CaseRun) -> None:
    """LeaveGroup removes a static member by its instance id alone."""
    member = await stable_member(run, instance_id="i1")
    response = await member.leave(member_id="")
    equal("error of the member", response.members[0].error_code, ErrorCode.NONE)
    code = await member.heartbeat()
    one_of("error of a heartbeat", code, [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID])


# Description, list, deletion


async def describe(run: CaseRun, group: str, version: int = 5) -> Any:
    """Return the group of a DescribeGroups response."""
    response = await run.request("DescribeGroups", await run.coordinator(group), groups=[group], version=version)
    return response.groups[0]


@case("groups.describe.stable", "DescribeGroupsResponse.json")
async def describe_stable(run: CaseRun) -> None:
    """DescribeGroups shows a stable group with protocol, members, metadata and assignment."""
    member = await stable_member(run, instance_id="i1")
    group = await describe(run, member.group)
    equal("ErrorCode", group.error_code, ErrorCode.NONE)
    actual = (group.group_state, group.protocol_type, group.protocol_data)
    equal("state and protocol", actual, ("Stable", "consumer", "range"))
    (shown,) = group.members
    equal("member", (shown.member_id, shown.group_instance_id), (member.member_id, "i1"))
    equal("metadata", (bytes(shown.member_metadata), bytes(shown.member_assignment)), (b"m", b"all"))
    equal("ClientId", shown.client_id, member.connection.client_id)


@case("groups.describe.joined-only", "ClassicGroupState")
async def describe_joined_only(run: CaseRun) -> None:
    """A group whose leader has not synchronised is CompletingRebalance."""
    member = await classic_member(run)
    await member.join()

    async def is_completing() -> bool:  # 3.9 describes a new group as Dead until its first record is committed
        return bool((await describe(run, member.group)).group_state == "CompletingRebalance")

    await run.until(is_completing, "the state CompletingRebalance")


@case_for_each(
    {"v5": (5, 0), "v6": (6, 69)},
    "groups.describe.unknown-{name}",
    "KIP-1043; DescribeGroupsResponse.json",
    needs=("DescribeGroups:{0}",),
)
async def describe_unknown(run: CaseRun, version: int, code: int) -> None:
    """DescribeGroups v{0} shows an unknown group as Dead, with error {1}."""
    group = await describe(run, run.name("none"), version)
    equal("state and error", (group.group_state, group.error_code), ("Dead", code))


@case_for_each(
    {"stable": ("Stable", True), "empty": ("Empty", False), "upper-case": ("STABLE", True)},
    "groups.list.state-{name}",
    "KIP-518; ListGroupsRequest.json",
)
async def list_by_state(run: CaseRun, state: str, expected: bool) -> None:
    """ListGroups with the state {0} lists a stable group: {1}."""
    member = await stable_member(run)
    response = await run.request("ListGroups", member.connection, version=4, states_filter=[state])
    listed = [each for each in response.groups if each.group_id == member.group]
    equal("listed", bool(listed), expected)
    if listed:
        equal("state and protocol", (listed[0].group_state, listed[0].protocol_type), ("Stable", "consumer"))


@case_for_each(
    {"classic": (["classic"], True), "consumer": (["consumer"], False)},
    "groups.list.type-{name}",
    "KIP-848; ListGroupsRequest.json",
    needs=("ListGroups:5",),
)
async def list_by_type(run: CaseRun, types: list[str], expected: bool) -> None:
    """ListGroups v5 with the types {0} lists a classic group: {1}."""
    member = await stable_member(run)
    response = await run.request("ListGroups", member.connection, version=5, types_filter=types)
    listed = [each.group_type for each in response.groups if each.group_id == member.group]
    equal("types of the listed group", listed, ["classic"] if expected else [])


@case("groups.delete.non-empty", "KIP-229")
async def delete_non_empty(run: CaseRun) -> None:
    """DeleteGroups refuses a group with members with NON_EMPTY_GROUP."""
    member = await stable_member(run)
    response = await run.request("DeleteGroups", member.connection, groups_names=[member.group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NON_EMPTY_GROUP)


@case("groups.delete.unknown", "KIP-229")
async def delete_unknown(run: CaseRun) -> None:
    """DeleteGroups of an unknown group gets GROUP_ID_NOT_FOUND."""
    group = run.name("none")
    response = await run.request("DeleteGroups", await run.coordinator(group), groups_names=[group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case("groups.delete.empty", "KIP-229")
async def delete_empty(run: CaseRun) -> None:
    """DeleteGroups deletes an empty group, after which it is Dead."""
    member = await stable_member(run)
    await member.leave()
    response = await run.request("DeleteGroups", member.connection, groups_names=[member.group])
    equal("ErrorCode", response.results[0].error_code, ErrorCode.NONE)
    equal("GroupState", (await describe(run, member.group)).group_state, "Dead")
