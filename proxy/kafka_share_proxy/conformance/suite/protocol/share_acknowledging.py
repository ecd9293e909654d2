"""Cases of acknowledgements: types, shape, ownership, ends of locks, renewals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_share_proxy.conformance.suite.capabilities import SHORT_LOCK_MS
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.protocol.share_sessions import UNKNOWN_ID, ten_records
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    SHARE,
    Ack,
    ShareSessionMember,
    acquired,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode

SECOND = (*SHARE, "ShareFetch:2", "ShareAcknowledge:2")
SHAPE = "KafkaApis.validateAcknowledgementBatches"
WINDOW = "KIP-932; SharePartition.acknowledge"
RENEWAL = "KIP-1222; SharePartition"
LOCK_S = SHORT_LOCK_MS / 1000


async def holding(run: CaseRun) -> tuple[CaseTopic, ShareSessionMember]:
    """A topic with the records 0-9, and a member that holds them."""
    topic, member = await ten_records(run)
    equal("acquired records", await member.acquire(topic), [(0, 9, 1)])
    return topic, member


async def acknowledged_by(
    api: str, member: ShareSessionMember, topic: CaseTopic, *acks: Ack, **fetch_options: Any
) -> int:
    """Send acknowledgements with one of the two requests; return the error code of partition 0."""
    if api == "ShareAcknowledge":
        response = await member.acknowledge(*acks)
        equal("error of the response", response.error_code, ErrorCode.NONE)
        return int(entry(response, topic).error_code)
    response = await member.fetch(acks=acks, wait_ms=0, **fetch_options)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    return int(entry(response, topic).acknowledge_error_code)


APIS = {"acknowledge": ("ShareAcknowledge",), "fetch": ("ShareFetch",)}


@case_for_each(
    {
        f"{kind}-by-{name}": (api, word, code)
        for kind, word, code in (("accept", "accepted", ACCEPT), ("reject", "rejected", REJECT))
        for name, (api,) in APIS.items()
    },
    "share-groups.acknowledge.{name}",
    WINDOW,
    needs=SHARE,
)
async def settled(run: CaseRun, api: str, _word: str, kind: int) -> None:
    """Records {1} by {0} are not delivered again."""
    topic, member = await holding(run)
    equal("error of the acknowledgement", await acknowledged_by(api, member, topic, (topic, 0, 0, 9, kind)), 0)
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(10, 10, 1)])


@case_for_each(APIS, "share-groups.acknowledge.release-by-{name}", WINDOW, needs=SHARE)
async def release(run: CaseRun, api: str) -> None:
    """Records released by {0} are delivered again with count 2."""
    topic, member = await holding(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0)
    code = await acknowledged_by(api, member, topic, (topic, 0, 0, 9, RELEASE), max_records=0)
    equal("error of the acknowledgement", code, ErrorCode.NONE)
    equal("acquired by another member", await other.acquire(topic), [(0, 9, 2)])


@case_for_each(
    APIS,
    "share-groups.acknowledge.own-type-of-each-by-{name}",
    "ShareAcknowledgeRequest.json (AcknowledgeTypes)",
    needs=SHARE,
)
async def own_type_of_each(run: CaseRun, api: str) -> None:
    """One type for each offset: each record takes its own state ({0})."""
    topic, member = await holding(run)
    types = [ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT, ACCEPT, REJECT, GAP, ACCEPT]
    code = await acknowledged_by(api, member, topic, (topic, 0, 0, 9, types), max_records=0)
    equal("error of the acknowledgement", code, ErrorCode.NONE)
    equal("acquired again", await member.acquire(topic), [(1, 1, 2), (4, 4, 2)])


@case("share-groups.acknowledge.piggybacked-result-with-records", "KIP-932; ShareFetchResponse.json", needs=SHARE)
async def piggybacked_with_records(run: CaseRun) -> None:
    """A ShareFetch returns the result of its acknowledgements together with new records."""
    topic, member = await holding(run)
    await run.produce(topic, 5)
    response = await member.fetch(acks=[(topic, 0, 0, 9, ACCEPT)])
    partition = entry(response, topic)
    equal("AcknowledgeErrorCode", partition.acknowledge_error_code, ErrorCode.NONE)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("acquired records", acquired(response, topic), [(10, 14, 1)])


BAD_SHAPES = {
    "first-after-last": ([(5, 3, [ACCEPT])],),
    "descending": ([(4, 6, [ACCEPT]), (0, 2, [ACCEPT])],),
    "overlapping": ([(0, 5, [ACCEPT]), (3, 8, [ACCEPT])],),
    "without-types": ([(0, 9, [])],),
    "too-few-types": ([(0, 2, [ACCEPT, ACCEPT])],),
    "too-many-types": ([(0, 1, [ACCEPT, ACCEPT, ACCEPT])],),
    "type-5": ([(0, 9, [5])],),
    "type-minus-1": ([(0, 9, [-1])],),
    "beyond-the-acquired": ([(10, 12, [ACCEPT])],),
    "ends-beyond-the-acquired": ([(5, 12, [ACCEPT])],),
}


@case_for_each(
    {f"{shape}-by-{name}": (api, *batches) for shape, batches in BAD_SHAPES.items() for name, (api,) in APIS.items()},
    "share-groups.acknowledge.shape-{name}",
    SHAPE,
    needs=SHARE,
)
async def bad_shape(run: CaseRun, api: str, batches: Sequence[tuple[int, int, list[int]]]) -> None:
    """{0} with the batches {1} (held: 0-9) gets INVALID_REQUEST for the partition, and changes nothing."""
    topic, member = await holding(run)
    acks = [(topic, 0, first, last, types) for first, last, types in batches]
    equal("error of the partition", await acknowledged_by(api, member, topic, *acks), ErrorCode.INVALID_REQUEST)
    again = await acknowledged_by(api, member, topic, (topic, 0, 0, 9, ACCEPT))
    equal("error of the right acknowledgement", again, ErrorCode.NONE)


@case("share-groups.acknowledge.no-batches", "ShareAcknowledgeRequest.json", needs=SHARE)
async def no_batches(run: CaseRun) -> None:
    """A partition without acknowledgement batches succeeds and changes nothing."""
    topic, member = await holding(run)
    topics = [{"topic_id": topic.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
    response = await member.acknowledge(topics=topics)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    accepted = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the acknowledgement", entry(accepted, topic).error_code, ErrorCode.NONE)


@case("share-groups.acknowledge.partitions-are-independent", WINDOW, needs=SHARE)
async def partitions_are_independent(run: CaseRun) -> None:
    """A partition with a wrong acknowledgement fails alone: another of the same request succeeds."""
    topic = await run.topic(2, count=3)
    member = await share_member(run, await share_group(run, topic), topic)
    await member.take((topic, 0))
    await member.take((topic, 1))
    response = await member.acknowledge((topic, 0, 0, 2, 5), (topic, 1, 0, 2, ACCEPT))
    equal("error of partition 0", entry(response, topic, 0).error_code, ErrorCode.INVALID_REQUEST)
    equal("error of partition 1", entry(response, topic, 1).error_code, ErrorCode.NONE)


@case(
    "share-groups.acknowledge.partition-fails-as-a-whole", "SharePartition.rollbackOrProcessStateUpdates", needs=SHARE
)
async def partition_fails_as_a_whole(run: CaseRun) -> None:
    """If one record of a partition cannot be acknowledged, none of the request is."""
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 7, 7, ACCEPT))
    equal("error", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.INVALID_RECORD_STATE)
    for first, last in ((0, 6), (8, 9)):
        equal(f"error {first}-{last}", await member.acknowledge_code((topic, 0, first, last, ACCEPT)), ErrorCode.NONE)


@case("share-groups.acknowledge.failure-uses-the-epoch", "KIP-932; SharePartitionManager", needs=SHARE)
async def failure_uses_the_epoch(run: CaseRun) -> None:
    """A request whose only partition fails uses its session epoch up."""
    topic, member = await holding(run)
    epoch = member.epoch
    await member.acknowledge((topic, 0, 0, 9, 5))
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT), epoch=epoch)
    equal("error at the same epoch", response.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


@case("share-groups.acknowledge.not-held", WINDOW, needs=SHARE)
async def not_held(run: CaseRun) -> None:
    """Acknowledging records of another member gets INVALID_RECORD_STATE; their holder can still acknowledge them."""
    topic, member = await holding(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0)
    equal("error", await other.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.INVALID_RECORD_STATE)
    equal("error for the holder", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.NONE)


@case("share-groups.acknowledge.released-is-not-held", WINDOW, needs=SHARE)
async def released_is_not_held(run: CaseRun) -> None:
    """A released record cannot be acknowledged."""
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 5, 5, RELEASE))
    equal("error", await member.acknowledge_code((topic, 0, 5, 5, ACCEPT)), ErrorCode.INVALID_RECORD_STATE)


@case("share-groups.acknowledge.twice", WINDOW, needs=SHARE)
async def twice(run: CaseRun) -> None:
    """A second acknowledgement gets INVALID_RECORD_STATE while the start offset has not passed the record."""
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 5, 9, ACCEPT))
    equal("error", await member.acknowledge_code((topic, 0, 5, 9, ACCEPT)), ErrorCode.INVALID_RECORD_STATE)


@case("share-groups.acknowledge.below-the-start-offset", WINDOW, needs=SHARE)
async def below_the_start_offset(run: CaseRun) -> None:
    """Acknowledging records below the start offset is no error and has no effect."""
    topic, member = await holding(run)
    await run.produce(topic, 5)
    await member.take(topic)
    await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the partition", await member.acknowledge_code((topic, 0, 0, 9, RELEASE)), ErrorCode.NONE)
    await member.acknowledge((topic, 0, 10, 14, RELEASE))
    equal("acquired again", await member.acquire(topic), [(10, 14, 2)])


@case("share-groups.acknowledge.partly-below-the-start-offset", WINDOW, needs=SHARE)
async def partly_below(run: CaseRun) -> None:
    """A batch that begins below the start offset is acknowledged from the start offset on."""
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 0, 4, ACCEPT))
    equal("error of the partition", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.NONE)
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(10, 10, 1)])


@case("share-groups.acknowledge.parts-of-a-batch", WINDOW, needs=SHARE)
async def parts_of_a_batch(run: CaseRun) -> None:
    """Parts of what was acquired together can be acknowledged one by one."""
    topic, member = await holding(run)
    for first, last in ((8, 9), (0, 1), (4, 5), (2, 3), (6, 7)):
        equal(f"error {first}-{last}", await member.acknowledge_code((topic, 0, first, last, ACCEPT)), ErrorCode.NONE)
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(10, 10, 1)])


@case("share-groups.acknowledge.over-several-batches", WINDOW, needs=SHARE)
async def over_several_batches(run: CaseRun) -> None:
    """One acknowledgement batch may cover several batches of the log."""
    topic = await run.topic()
    await run.produce(topic, 3, 3, 3)
    member = await share_member(run, await share_group(run, topic), topic)
    await member.take(topic)
    equal("error of the partition", await member.acknowledge_code((topic, 0, 1, 7, ACCEPT)), ErrorCode.NONE)
    await member.acknowledge((topic, 0, 0, 0, RELEASE), (topic, 0, 8, 8, RELEASE))
    equal("acquired again", await member.acquire(topic), [(0, 0, 2), (8, 8, 2)])


@case("share-groups.acknowledge.unknown-topic-id", "KafkaApis.handleShareAcknowledgeRequest", needs=SHARE)
async def unknown_topic_id(run: CaseRun) -> None:
    """Acknowledgements for an unknown topic id get UNKNOWN_TOPIC_ID."""
    _, member = await holding(run)
    unknown = CaseTopic("unknown", UNKNOWN_ID, {0: 0})
    response = await member.acknowledge((unknown, 0, 0, 9, ACCEPT))
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("error of the partition", entry(response, unknown).error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case("share-groups.acknowledge.unknown-partition", "KafkaApis.handleShareAcknowledgeRequest", needs=SHARE)
async def unknown_partition(run: CaseRun) -> None:
    """Acknowledgements for a partition that the topic does not have get UNKNOWN_TOPIC_OR_PARTITION."""
    topic, member = await holding(run)
    equal("error", await member.acknowledge_code((topic, 9, 0, 9, ACCEPT)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
