"""Cases of start offsets of share groups: description, lag, alteration, deletion, the reset policy, isolation."""

from __future__ import annotations

import time
from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, one_of
from kafka_share_proxy.conformance.suite.protocol.share_descriptions import describe
from kafka_share_proxy.conformance.suite.protocol.share_membership import joined
from kafka_share_proxy.conformance.suite.protocol.share_sessions import ten_records, ten_taken
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    SHARE,
    ShareSessionMember,
    acquired,
    described,
    share_group,
    share_member,
)
from kafka_share_proxy.conformance.suite.transactional_producers import begin_transactions, topic_and_producer
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.values import ZERO_UUID

OFFSETS = (*SHARE, "DescribeShareGroupOffsets:0")
LAG = (*SHARE, "DescribeShareGroupOffsets:1")
ALTER = (*OFFSETS, "AlterShareGroupOffsets:0")
DELETE = (*OFFSETS, "DeleteShareGroupOffsets:0")
DESCRIBE = "KIP-932; DescribeShareGroupOffsetsResponse.json"
HOUR_MS = 3_600_000


@case("share-groups.offsets.described", DESCRIBE, needs=ALTER)
async def described_start(run: CaseRun) -> None:
    """A share partition whose start offset was set is described with it, its topic id and no error."""
    topic = await run.topic(count=10)
    group = await share_group(run, topic, start=4)
    groups = [{"group_id": group, "topics": [{"topic_name": topic.name, "partitions": [0]}]}]
    response = await run.request("DescribeShareGroupOffsets", await run.coordinator(group), groups=groups)
    (shown,) = response.groups[0].topics
    equal("topic", (shown.topic_name, bytes(shown.topic_id)), (topic.name, topic.topic_id))
    (partition,) = shown.partitions
    equal("StartOffset", partition.start_offset, 4)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)


@case("share-groups.offsets.all-topics", DESCRIBE, needs=ALTER)
async def all_topics(run: CaseRun) -> None:
    """With null topics all share partitions of the group are described."""
    first, second = await run.topic(2, count=1), await run.topic(count=1)
    group = await share_group(run, first, second)
    groups = [{"group_id": group, "topics": None}]
    response = await run.request("DescribeShareGroupOffsets", await run.coordinator(group), groups=groups)
    actual = {each.topic_name: sorted(p.partition_index for p in each.partitions) for each in response.groups[0].topics}
    equal("described partitions", actual, {first.name: [0, 1], second.name: [0]})


@case("share-groups.offsets.unknown-group", DESCRIBE, needs=OFFSETS)
async def unknown_group(run: CaseRun) -> None:
    """With null topics an unknown group is described without topics and without an error."""
    group = run.name("no-group")
    groups = [{"group_id": group, "topics": None}]
    response = await run.request("DescribeShareGroupOffsets", await run.coordinator(group), groups=groups)
    equal("ErrorCode", response.groups[0].error_code, ErrorCode.NONE)
    equal("topics", list(response.groups[0].topics), [])


@case("share-groups.offsets.unknown-topic", DESCRIBE, needs=ALTER)
async def unknown_topic(run: CaseRun) -> None:
    """An unknown topic is described with start offset -1, without an error and with a zero topic id."""
    group = await share_group(run, await run.topic())
    groups = [{"group_id": group, "topics": [{"topic_name": run.name("none"), "partitions": [0]}]}]
    response = await run.request("DescribeShareGroupOffsets", await run.coordinator(group), groups=groups)
    (shown,) = response.groups[0].topics
    equal("topic id", bytes(shown.topic_id), ZERO_UUID)
    equal("StartOffset", shown.partitions[0].start_offset, -1)
    equal("ErrorCode", shown.partitions[0].error_code, ErrorCode.NONE)


@case("share-groups.offsets.unused-partition", DESCRIBE, needs=LAG)
async def unused_partition(run: CaseRun) -> None:
    """A partition that the group never used is described with start offset -1 and lag -1."""
    used, unused = await run.topic(), await run.topic(count=3)
    group = await share_group(run, used)
    shown = await described(run, group, unused)
    equal("StartOffset and Lag", (shown.start_offset, shown.lag), (-1, -1))
    equal("ErrorCode", shown.error_code, ErrorCode.NONE)


@case_for_each(
    {
        "nothing-delivered": (None, 10),
        "accepted": (ACCEPT, 0),
        "rejected": (REJECT, 0),
        "released": (RELEASE, 10),
    },
    "share-groups.offsets.lag-{name}",
    "KIP-1226; SharePartition.writeShareGroupState",
    needs=(*LAG, "AlterShareGroupOffsets:0"),
)
async def lag(run: CaseRun, kind: int | None, expected: int) -> None:
    """Ten records, acknowledged with {0}: the lag is {1}."""
    topic, member = await ten_records(run)
    if kind is not None:
        await member.take(topic)
        await member.acknowledge((topic, 0, 0, 9, kind))

    async def shown() -> bool:
        return bool((await described(run, member.group, topic)).lag == expected)

    await run.until(shown, f"a lag of {expected}")


@case("share-groups.offsets.lag-of-holes", "KIP-1226 (DeliveryCompleteCount)", needs=(*LAG, "AlterShareGroupOffsets:0"))
async def lag_of_holes(run: CaseRun) -> None:
    """Records settled after an unsettled one do not count for the lag."""
    topic, member = await ten_taken(run)
    await member.acknowledge((topic, 0, 4, 9, ACCEPT))
    equal("Lag", (await described(run, member.group, topic)).lag, 4)


@case(
    "share-groups.offsets.altered-lag",
    "KIP-1226; GroupCoordinatorService.alterShareGroupOffsets",
    needs=(*LAG, "AlterShareGroupOffsets:0"),
)
async def altered_lag(run: CaseRun) -> None:
    """After AlterShareGroupOffsets the lag is the end of the log less the new start offset."""
    topic = await run.topic(count=10)
    group = await share_group(run, topic, start=7)
    shown = await described(run, group, topic)
    equal("StartOffset and Lag", (shown.start_offset, shown.lag), (7, 3))


async def alter(run: CaseRun, group: str, topic: str, partition: int = 0, start: int = 0) -> Any:
    """Return the response to an AlterShareGroupOffsets of one partition."""
    topics = [{"topic_name": topic, "partitions": [{"partition_index": partition, "start_offset": start}]}]
    return await run.request("AlterShareGroupOffsets", await run.coordinator(group), group_id=group, topics=topics)


@case(
    "share-groups.offsets.alter-creates-the-group", "KIP-932; GroupMetadataManager.alterShareGroupOffsets", needs=ALTER
)
async def alter_creates(run: CaseRun) -> None:
    """AlterShareGroupOffsets creates a missing group, which is Empty."""
    group = await share_group(run, await run.topic())
    equal("GroupState", (await describe(run, group)).group_state, "Empty")


@case("share-groups.offsets.alter-with-members", "KIP-932; GroupMetadataManager", needs=ALTER)
async def alter_with_members(run: CaseRun) -> None:
    """AlterShareGroupOffsets refuses a group with members with NON_EMPTY_GROUP."""
    topic = await run.topic()
    member = await joined(run, topic)
    response = await alter(run, member.group, topic.name)
    equal("ErrorCode", response.error_code, ErrorCode.NON_EMPTY_GROUP)


@case_for_each(
    {"topic": ("none", 0), "partition": ("", 9)},
    "share-groups.offsets.alter-unknown-{name}",
    "KIP-932; GroupMetadataManager.alterShareGroupOffsets",
    needs=ALTER,
)
async def alter_unknown(run: CaseRun, kind: str, partition: int) -> None:
    """AlterShareGroupOffsets of an unknown {name} gets UNKNOWN_TOPIC_OR_PARTITION for it."""
    topic = await run.topic()
    group = await share_group(run, topic)
    response = await alter(run, group, run.name(kind) if kind else topic.name, partition)
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    code = response.responses[0].partitions[0].error_code
    equal("error of the partition", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case("share-groups.offsets.deleted", "KIP-932; GroupCoordinatorService.deleteShareGroupOffsets", needs=DELETE)
async def deleted(run: CaseRun) -> None:
    """DeleteShareGroupOffsets forgets the share partitions of a topic."""
    topic = await run.topic(count=5)
    group = await share_group(run, topic)
    coordinator = await run.coordinator(group)
    response = await run.request(
        "DeleteShareGroupOffsets", coordinator, group_id=group, topics=[{"topic_name": topic.name}]
    )
    equal("ErrorCode", response.error_code, ErrorCode.NONE)
    equal("error of the topic", response.responses[0].error_code, ErrorCode.NONE)
    equal("StartOffset", (await described(run, group, topic)).start_offset, -1)


@case("share-groups.offsets.delete-unknown-group", "KIP-932; GroupCoordinatorService", needs=DELETE)
async def delete_unknown_group(run: CaseRun) -> None:
    """DeleteShareGroupOffsets of an unknown group gets GROUP_ID_NOT_FOUND."""
    group = run.name("no-group")
    topic = await run.topic()
    response = await run.request(
        "DeleteShareGroupOffsets", await run.coordinator(group), group_id=group, topics=[{"topic_name": topic.name}]
    )
    equal("ErrorCode", response.error_code, ErrorCode.GROUP_ID_NOT_FOUND)


@case("share-groups.offsets.delete-with-members", "KIP-932; GroupMetadataManager", needs=DELETE)
async def delete_with_members(run: CaseRun) -> None:
    """DeleteShareGroupOffsets refuses a group with members with NON_EMPTY_GROUP."""
    topic = await run.topic()
    member = await joined(run, topic)
    coordinator = await run.coordinator(member.group)
    response = await run.request(
        "DeleteShareGroupOffsets", coordinator, group_id=member.group, topics=[{"topic_name": topic.name}]
    )
    equal("ErrorCode", response.error_code, ErrorCode.NON_EMPTY_GROUP)


# The reset policy, which needs members: a share partition is initialised when it is assigned


async def member_from(run: CaseRun, topic: CaseTopic, reset: str | None) -> ShareSessionMember:
    """A member of a new group whose share partitions are initialised by its join."""
    group = run.group()
    if reset is not None:
        await run.cluster.configure_group(await run.connection(), group, {"share.auto.offset.reset": reset})
    member = await share_member(run, group, topic)
    await member.join(topic)
    return member


@case(
    "share-groups.reset.earliest",
    "KIP-932; ShareFetchUtils.offsetForEarliestTimestamp",
    needs=(*SHARE, "group-settings"),
)
async def earliest(run: CaseRun) -> None:
    """share.auto.offset.reset=earliest begins at the start of the log."""
    topic = await run.topic(count=10)
    member = await member_from(run, topic, "earliest")
    equal("acquired records", await member.acquire(topic), [(0, 9, 1)])


@case(
    "share-groups.reset.earliest-after-deletion",
    "KIP-932; ShareFetchUtils.offsetForEarliestTimestamp",
    needs=(*SHARE, "group-settings"),
)
async def earliest_after_deletion(run: CaseRun) -> None:
    """share.auto.offset.reset=earliest begins at the log start offset."""
    topic = await run.topic(count=10)
    await run.delete_records(topic, 5)
    member = await member_from(run, topic, "earliest")
    equal("acquired records", await member.acquire(topic), [(5, 9, 1)])


@case("share-groups.reset.latest-by-default", "KIP-932; group.share.auto.offset.reset (latest)", needs=SHARE)
async def latest(run: CaseRun) -> None:
    """By default a share partition begins at the end of the log when it is first fetched."""
    topic = await run.topic(count=10)
    member = await member_from(run, topic, None)
    await member.fetch(topic)
    await member.fetch()
    await run.produce(topic, 3)
    equal("acquired records", await member.acquire(topic), [(10, 12, 1)])


@case("share-groups.reset.by-duration", "KIP-932; ShareFetchUtils.offsetForTimestamp", needs=(*SHARE, "group-settings"))
async def by_duration(run: CaseRun) -> None:
    """by_duration:PT1H begins at the first record of the last hour."""
    topic = await run.topic()
    now = int(time.time() * 1000)
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 0):
        await run.append(topic, records.build_batch(0, [records.Record(value=b"v", timestamp=now - age_ms)]))
    member = await member_from(run, topic, "by_duration:PT1H")
    equal("first acquired offset", (await member.acquire(topic))[0][0], 2)


@case_for_each(
    {
        "reset": ("share.auto.offset.reset", "somewhere"),
        "duration": ("share.auto.offset.reset", "by_duration:-PT1H"),
        "isolation": ("share.isolation.level", "read_some"),
        "lock-too-short": ("share.record.lock.duration.ms", "1"),
        "lock-not-a-number": ("share.record.lock.duration.ms", "soon"),
        "unknown": ("share.no.such.setting", "1"),
    },
    "share-groups.settings.invalid-{name}",
    "GroupConfig; KIP-932",
    needs=(*SHARE, "group-settings"),
)
async def invalid_setting(run: CaseRun, key: str, value: str) -> None:
    """{0}={1} is refused with INVALID_CONFIG."""
    error = await run.cluster.alter_group(await run.connection(), run.group(), {key: value})
    equal("error", error.split(" ")[0], "INVALID_CONFIG")


@case("share-groups.settings.before-the-group", "KIP-932; GroupConfigManager", needs=(*SHARE, "group-settings"))
async def before_the_group(run: CaseRun) -> None:
    """The settings of a group can be set before the group exists, and are described."""
    group = run.group()
    await run.cluster.configure_group(await run.connection(), group, {"share.record.lock.duration.ms": "20000"})
    shown = await run.cluster.group_settings(await run.connection(), group)
    equal("share.record.lock.duration.ms", shown["share.record.lock.duration.ms"], "20000")
    equal("share.auto.offset.reset", shown["share.auto.offset.reset"], "latest")


# Isolation


@case_for_each(
    {"uncommitted": (None, [0, 1, 3, 4, 6]), "committed": ("read_committed", [0, 1, 6])},
    "share-groups.isolation.read-{name}",
    "KIP-932; SharePartition (share.isolation.level)",
    needs=(*SHARE, "isolation"),
)
async def isolation(run: CaseRun, level: str | None, expected: list[int]) -> None:
    """Two committed, two aborted and one plain record: the values of the offsets {1} are delivered."""
    topic, producer = await topic_and_producer(run)
    for commits in (True, False):
        await producer.append(topic, 2)
        await producer.end(committed=commits)
    await run.produce(topic, 1)
    settings = None if level is None else {"share.isolation.level": level}
    member = await share_member(run, await share_group(run, topic, settings=settings), topic)
    data, markers = {0, 1, 3, 4, 6}, {2, 5}
    actual: set[int] = set()

    def complete(response: Any) -> bool:
        actual.update(n for first, last, _ in acquired(response, topic) for n in range(first, last + 1))
        return 6 in actual

    await member.fetch_until(complete, topic)
    equal("acquired data records", sorted(actual & data), expected)
    equal("acquired offsets beyond records and markers", sorted(actual - data - markers), [])


@case(
    "share-groups.isolation.open-transaction",
    "KIP-98; SharePartition (last stable offset)",
    needs=(*SHARE, "isolation"),
)
async def open_transaction(run: CaseRun) -> None:
    """With read_committed nothing from the first record of an open transaction on is delivered."""
    topic = await run.topic(count=2)
    producer = await begin_transactions(run)
    await producer.append(topic, 3)
    await run.produce(topic, 1)
    group = await share_group(run, topic, settings={"share.isolation.level": "read_committed"})
    member = await share_member(run, group, topic)
    equal("acquired before the commit", await member.acquire(topic), [(0, 1, 1)])
    equal("acquired in the meantime", acquired(await member.fetch(wait_ms=300), topic), [])
    await producer.end(committed=True)
    first = (await member.acquire(topic))[0]
    one_of("first span after the commit", first, [(2, 4, 1), (2, 5, 1), (2, 6, 1)])
