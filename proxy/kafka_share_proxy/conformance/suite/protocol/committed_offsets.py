"""Cases of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.classic_members import stable_member
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.wire.errors import ErrorCode

COMMIT = "OffsetCommitRequest.json; OffsetMetadataManager.commitOffset"
FETCH = "OffsetFetchResponse.json; OffsetMetadataManager.fetchOffsets"
METADATA_MAX = 4096
"""offset.metadata.max.bytes"""


async def commit(
    run: CaseRun,
    group: str,
    topic: CaseTopic,
    offset: int,
    partition: int = 0,
    version: int | None = None,
    **fields: Any,
) -> int:
    """Commit an offset as a consumer without a group membership; return the error of the partition."""
    inner = {name: fields.pop(name) for name in list(fields) if name.startswith("committed_")}
    entry = {"partition_index": partition, "committed_offset": offset} | inner
    topic_fields = {"name": topic.name} if version is None or version < 10 else {"topic_id": topic.topic_id}
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [topic_fields | {"partitions": [entry]}],
    }
    response = await run.request("OffsetCommit", await run.coordinator(group), version, **(values | fields))
    return int(response.topics[0].partitions[0].error_code)


async def fetch_group(run: CaseRun, group: str, topics: list[dict[str, Any]] | None, **fields: Any) -> Any:
    """Return the group of an OffsetFetch v8 response."""
    groups = [{"group_id": group, "topics": topics}]
    response = await run.request("OffsetFetch", await run.coordinator(group), groups=groups, **fields)
    return response.groups[0]


async def committed(run: CaseRun, group: str, topic: CaseTopic, partition: int = 0, **fields: Any) -> Any:
    """Return the partition of an OffsetFetch response."""
    requested = [{"name": topic.name, "partition_indexes": [partition]}]
    fetched = await fetch_group(run, group, requested, **fields)
    equal("error of the group", fetched.error_code, ErrorCode.NONE)
    return fetched.topics[0].partitions[0]


@case("offsets.commit.kept", FETCH)
async def fetched_as_committed(run: CaseRun) -> None:
    """A committed offset is fetched with its metadata and leader epoch."""
    topic, group = await run.topic(count=5), run.group()
    code = await commit(run, group, topic, 3, committed_metadata="note", committed_leader_epoch=0)
    equal("error of the commit", code, ErrorCode.NONE)
    actual = await committed(run, group, topic)
    equal("offset", actual.committed_offset, 3)
    equal("metadata", actual.metadata, "note")
    equal("leader epoch", actual.committed_leader_epoch, 0)
    equal("error", actual.error_code, ErrorCode.NONE)


@case_for_each(
    {str(version): (version,) for version in range(2, 10)},
    "offsets.commit.version-{name}",
    "OffsetCommitRequest.json",
    needs=("OffsetCommit:{0}",),
)
async def commit_versions(run: CaseRun, version: int) -> None:
    """OffsetCommit v{0} stores the offset."""
    topic, group = await run.topic(), run.group()
    equal("error of the commit", await commit(run, group, topic, 7, version=version), ErrorCode.NONE)
    equal("offset", (await committed(run, group, topic)).committed_offset, 7)


@case_for_each(
    {str(version): (version,) for version in range(1, 8)},
    "offsets.fetch.version-{name}",
    "OffsetFetchRequest.json",
    needs=("OffsetFetch:{0}",),
)
async def fetch_versions(run: CaseRun, version: int) -> None:
    """OffsetFetch v{0} of one group returns the committed offset."""
    topic, group = await run.topic(), run.group()
    await commit(run, group, topic, 7, committed_metadata="note")
    topics = [{"name": topic.name, "partition_indexes": [0]}]
    response = await run.request("OffsetFetch", await run.coordinator(group), version, group_id=group, topics=topics)
    (partition,) = response.topics[0].partitions
    equal("offset and metadata", (partition.committed_offset, partition.metadata), (7, "note"))


@case(
    "offsets.commit.by-topic-id",
    "KIP-848; OffsetCommitRequest.json (TopicId)",
    needs=("OffsetCommit:10", "OffsetFetch:10"),
)
async def by_topic_id(run: CaseRun) -> None:
    """OffsetCommit v10 and OffsetFetch v10 name topics by id."""
    topic, group = await run.topic(), run.group()
    equal("error of the commit", await commit(run, group, topic, 7, version=10), ErrorCode.NONE)
    groups = [{"group_id": group, "topics": [{"topic_id": topic.topic_id, "partition_indexes": [0]}]}]
    response = await run.request("OffsetFetch", await run.coordinator(group), 10, groups=groups)
    (fetched,) = response.groups[0].topics
    actual = (bytes(fetched.topic_id), fetched.partitions[0].committed_offset)
    equal("topic id and offset", actual, (topic.topic_id, 7))


@case("offsets.commit.unknown-topic-id", "KIP-848; OffsetCommitRequest.json (TopicId)", needs=("OffsetCommit:10",))
async def unknown_topic_id(run: CaseRun) -> None:
    """OffsetCommit v10 of an unknown topic id gets UNKNOWN_TOPIC_ID."""
    topic = await run.topic()
    unknown = CaseTopic(topic.name, b"\x05" * 16, topic.leaders)
    equal("error", await commit(run, run.group(), unknown, 7, version=10), ErrorCode.UNKNOWN_TOPIC_ID)


@case("offsets.commit.unknown-topic", "KafkaApis.handleOffsetCommitRequest")
async def unknown_topic(run: CaseRun) -> None:
    """OffsetCommit of an unknown topic gets UNKNOWN_TOPIC_OR_PARTITION and stores nothing."""
    topic, group = await run.topic(), run.group()
    unknown = CaseTopic(run.name("none"), topic.topic_id, topic.leaders)
    equal("error", await commit(run, group, unknown, 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    equal("offset", (await committed(run, group, unknown)).committed_offset, -1)


@case("offsets.commit.unknown-partition", "KafkaApis.handleOffsetCommitRequest")
async def unknown_partition(run: CaseRun) -> None:
    """OffsetCommit of an unknown partition gets UNKNOWN_TOPIC_OR_PARTITION."""
    code = await commit(run, run.group(), await run.topic(), 7, partition=9)
    equal("error", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case_for_each(
    {"largest": (METADATA_MAX, ErrorCode.NONE), "too-large": (METADATA_MAX + 1, ErrorCode.OFFSET_METADATA_TOO_LARGE)},
    "offsets.commit.metadata-{name}",
    "offset.metadata.max.bytes (4096)",
)
async def metadata_size(run: CaseRun, size: int, code: ErrorCode) -> None:
    """OffsetCommit with metadata of {0} characters gets {1.name}."""
    topic, group = await run.topic(), run.group()
    equal("error", await commit(run, group, topic, 1, committed_metadata="x" * size), code)


@case("offsets.commit.lower", COMMIT)
async def lower(run: CaseRun) -> None:
    """A commit of a lower offset replaces a higher one."""
    topic, group = await run.topic(), run.group()
    await commit(run, group, topic, 9)
    await commit(run, group, topic, 4)
    equal("offset", (await committed(run, group, topic)).committed_offset, 4)


@case("offsets.commit.groups-are-independent", COMMIT)
async def groups_are_independent(run: CaseRun) -> None:
    """Each group has its own offsets."""
    topic, first, second = await run.topic(), run.group(), run.group()
    await commit(run, first, topic, 9)
    equal("offset of another group", (await committed(run, second, topic)).committed_offset, -1)


@case_for_each(
    {
        "generation": ({"generation_id_or_member_epoch": 9}, ErrorCode.ILLEGAL_GENERATION),
        "member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        "right": ({}, ErrorCode.NONE),
    },
    "offsets.commit.of-a-member-{name}",
    "OffsetMetadataManager.validateOffsetCommit",
)
async def of_a_member(run: CaseRun, fields: dict[str, Any], code: ErrorCode) -> None:
    """OffsetCommit of a member of a classic group with {0} gets {1.name}."""
    topic = await run.topic()
    member = await stable_member(run)
    ids: dict[str, Any] = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
    equal("error", await commit(run, member.group, topic, 5, **(ids | fields)), code)


@case("offsets.commit.without-membership", "ClassicGroup.validateOffsetCommit")
async def without_membership(run: CaseRun) -> None:
    """A commit without a member id in a group with members gets UNKNOWN_MEMBER_ID."""
    topic = await run.topic()
    member = await stable_member(run)
    equal("error", await commit(run, member.group, topic, 5), ErrorCode.UNKNOWN_MEMBER_ID)


@case("offsets.commit.fenced-instance", "KIP-345")
async def fenced_instance(run: CaseRun) -> None:
    """A commit with an instance id and another member id gets FENCED_INSTANCE_ID."""
    topic = await run.topic()
    member = await stable_member(run, instance_id="i1")
    ids: dict[str, Any] = {
        "generation_id_or_member_epoch": member.generation,
        "member_id": "other",
        "group_instance_id": "i1",
    }
    equal("error", await commit(run, member.group, topic, 5, **ids), ErrorCode.FENCED_INSTANCE_ID)


@case("offsets.fetch.none", FETCH)
async def fetch_none(run: CaseRun) -> None:
    """A partition without a committed offset has offset -1, empty metadata, epoch -1 and no error."""
    actual = await committed(run, run.group(), await run.topic())
    values = (actual.committed_offset, actual.metadata, actual.committed_leader_epoch, actual.error_code)
    equal("offset, metadata, epoch and error", values, (-1, "", -1, 0))


@case("offsets.fetch.all-topics", FETCH)
async def all_topics(run: CaseRun) -> None:
    """With null topics every committed partition of the group is returned."""
    first, second, group = await run.topic(2), await run.topic(), run.group()
    await commit(run, group, first, 1, 1)
    await commit(run, group, second, 2)
    fetched = await fetch_group(run, group, None)
    actual = {(t.name, p.partition_index): p.committed_offset for t in fetched.topics for p in t.partitions}
    equal("offsets", actual, {(first.name, 1): 1, (second.name, 0): 2})


@case("offsets.fetch.several-groups", "KIP-709; OffsetFetchRequest.json", needs=("OffsetFetch:8",))
async def several_groups(run: CaseRun) -> None:
    """OffsetFetch v8 returns several groups, each with its own offsets."""
    topic, first, second = await run.topic(), run.group(), run.group()
    await commit(run, first, topic, 1)
    await commit(run, second, topic, 2)
    coordinators = [await run.coordinator(first), await run.coordinator(second)]
    requested = [{"name": topic.name, "partition_indexes": [0]}]
    groups: list[dict[str, Any]] = [{"group_id": first, "topics": requested}, {"group_id": second, "topics": None}]
    if coordinators[0] is not coordinators[1]:
        groups = groups[:1]
    response = await run.request("OffsetFetch", coordinators[0], groups=groups)
    actual = {each.group_id: each.topics[0].partitions[0].committed_offset for each in response.groups}
    equal("offsets", actual, {each["group_id"]: 1 + (each["group_id"] == second) for each in groups})


@case("offsets.fetch.unknown-group", FETCH)
async def unknown_group(run: CaseRun) -> None:
    """OffsetFetch of a group that does not exist returns no topics for null topics, and no error."""
    fetched = await fetch_group(run, run.name("none"), None)
    equal("error and topics", (fetched.error_code, list(fetched.topics)), (0, []))


async def delete(run: CaseRun, group: str, topic: CaseTopic) -> Any:
    """Return the response to an OffsetDelete of partition 0."""
    topics = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    return await run.request("OffsetDelete", await run.coordinator(group), group_id=group, topics=topics)


@case("offsets.delete.done", "KIP-496; OffsetDeleteResponse.json")
async def deleted(run: CaseRun) -> None:
    """OffsetDelete removes the committed offset of a partition."""
    topic, group = await run.topic(), run.group()
    await commit(run, group, topic, 5)
    response = await delete(run, group, topic)
    codes = (response.error_code, response.topics[0].partitions[0].error_code)
    equal("errors of group and partition", codes, (0, 0))
    equal("offset", (await committed(run, group, topic)).committed_offset, -1)


@case("offsets.delete.unknown-group", "KIP-496")
async def delete_unknown_group(run: CaseRun) -> None:
    """OffsetDelete of an unknown group gets GROUP_ID_NOT_FOUND."""
    response = await delete(run, run.name("none"), await run.topic())
    equal("ErrorCode", response.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case("offsets.delete.unreadable-subscription", "KIP-496; ClassicGroup.validateOffsetDelete")
async def delete_with_members(run: CaseRun) -> None:
    """OffsetDelete in a group whose members' subscriptions cannot be read gets GROUP_SUBSCRIBED_TO_TOPIC."""
    topic = await run.topic()
    member = await stable_member(run)
    ids: dict[str, Any] = {"generation_id_or_member_epoch": member.generation, "member_id": member.member_id}
    await commit(run, member.group, topic, 5, **ids)
    response = await delete(run, member.group, topic)
    codes = {response.error_code, *(p.error_code for t in response.topics for p in t.partitions)} - {0}
    equal("errors", codes, {int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)})
