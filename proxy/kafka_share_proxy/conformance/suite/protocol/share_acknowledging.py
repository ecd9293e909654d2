"""Cases of acknowledgements: types, shape, ownership, ends of locks, renewals."""

from __future__ import annotations

from collections.abc import Sequence

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
    equal("acquired records", await member.taken(topic), [(0, 9, 1)])
    return topic, member


async def acknowledged_by(api: str, member: ShareSessionMember, topic: CaseTopic, *acks: Ack) -> int:
    """Send acknowledgements with one of the two requests; return the error code of partition 0."""
    if api == "ShareAcknowledge":
        response = await member.acknowledge(*acks)
        equal("error of the response", response.error_code, ErrorCode.NONE)
        return int(entry(response, topic).error_code)
    response = await member.fetch(acks=acks, wait_ms=0)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    return int(entry(response, topic).acknowledge_error_code)


APIS = {"acknowledge": ("ShareAcknowledge",), "fetch": ("ShareFetch",)}


@case_for_each(
    APIS,
    "share-groups.acknowledge.accept-by-{name}",
    "Records accepted by {0} are not delivered again.",
    WINDOW,
    needs=SHARE,
)
async def accept(run: CaseRun, api: str) -> None:
    topic, member = await holding(run)
    equal("error of the acknowledgement", await acknowledged_by(api, member, topic, (topic, 0, 0, 9, ACCEPT)), 0)
    await run.produce(topic, 1)
    equal("acquired next", await member.taken(topic), [(10, 10, 1)])


@case_for_each(
    APIS,
    "share-groups.acknowledge.release-by-{name}",
    "Records released by {0} are delivered again with count 2.",
    WINDOW,
    needs=SHARE,
)
async def release(run: CaseRun, api: str) -> None:
    topic, member = await holding(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0)
    response = await (
        member.acknowledge((topic, 0, 0, 9, RELEASE))
        if api == "ShareAcknowledge"
        else member.fetch(acks=[(topic, 0, 0, 9, RELEASE)], wait_ms=0, max_records=0)
    )
    partition = entry(response, topic)
    code = partition.error_code if api == "ShareAcknowledge" else partition.acknowledge_error_code
    equal("error of the acknowledgement", code, ErrorCode.NONE)
    equal("acquired by another member", await other.taken(topic), [(0, 9, 2)])


@case_for_each(
    APIS,
    "share-groups.acknowledge.reject-by-{name}",
    "Records rejected by {0} are not delivered again.",
    WINDOW,
    needs=SHARE,
)
async def reject(run: CaseRun, api: str) -> None:
    topic, member = await holding(run)
    equal("error of the acknowledgement", await acknowledged_by(api, member, topic, (topic, 0, 0, 9, REJECT)), 0)
    await run.produce(topic, 1)
    equal("acquired next", await member.taken(topic), [(10, 10, 1)])


@case_for_each(
    APIS,
    "share-groups.acknowledge.own-type-of-each-by-{name}",
    "One type for each offset: each record takes its own state ({0}).",
    "ShareAcknowledgeRequest.json (AcknowledgeTypes)",
    needs=SHARE,
)
async def own_type_of_each(run: CaseRun, api: str) -> None:
    topic, member = await holding(run)
    types = [ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT, ACCEPT, REJECT, GAP, ACCEPT]
    response = await (
        member.acknowledge((topic, 0, 0, 9, types))
        if api == "ShareAcknowledge"
        else member.fetch(acks=[(topic, 0, 0, 9, types)], wait_ms=0, max_records=0)
    )
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("acquired again", await member.taken(topic), [(1, 1, 2), (4, 4, 2)])


@case(
    "share-groups.acknowledge.piggybacked-result-with-records",
    "A ShareFetch returns the result of its acknowledgements together with new records.",
    "KIP-932; ShareFetchResponse.json",
    needs=SHARE,
)
async def piggybacked_with_records(run: CaseRun) -> None:
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
    "{0} with the batches {1} (held: 0-9) gets INVALID_REQUEST for the partition, and changes nothing.",
    SHAPE,
    needs=SHARE,
)
async def bad_shape(run: CaseRun, api: str, batches: Sequence[tuple[int, int, list[int]]]) -> None:
    topic, member = await holding(run)
    acks = [(topic, 0, first, last, types) for first, last, types in batches]
    equal("error of the partition", await acknowledged_by(api, member, topic, *acks), ErrorCode.INVALID_REQUEST)
    again = await acknowledged_by(api, member, topic, (topic, 0, 0, 9, ACCEPT))
    equal("error of the right acknowledgement", again, ErrorCode.NONE)


@case(
    "share-groups.acknowledge.no-batches",
    "A partition without acknowledgement batches succeeds and changes nothing.",
    "ShareAcknowledgeRequest.json",
    needs=SHARE,
)
async def no_batches(run: CaseRun) -> None:
    topic, member = await holding(run)
    topics = [{"topic_id": topic.topic_id, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
    response = await member.acknowledge(topics=topics)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    accepted = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the acknowledgement", entry(accepted, topic).error_code, ErrorCode.NONE)


@case(
    "share-groups.acknowledge.partitions-are-independent",
    "A partition with a wrong acknowledgement fails alone: another of the same request succeeds.",
    WINDOW,
    needs=SHARE,
)
async def partitions_are_independent(run: CaseRun) -> None:
    topic = await run.topic(2, count=3)
    member = await share_member(run, await share_group(run, topic), topic)
    await member.take((topic, 0))
    await member.take((topic, 1))
    response = await member.acknowledge((topic, 0, 0, 2, 5), (topic, 1, 0, 2, ACCEPT))
    equal("error of partition 0", entry(response, topic, 0).error_code, ErrorCode.INVALID_REQUEST)
    equal("error of partition 1", entry(response, topic, 1).error_code, ErrorCode.NONE)


@case(
    "share-groups.acknowledge.partition-fails-as-a-whole",
    "If one record of a partition cannot be acknowledged, none of the request is.",
    "SharePartition.rollbackOrProcessStateUpdates",
    needs=SHARE,
)
async def partition_fails_as_a_whole(run: CaseRun) -> None:
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 7, 7, ACCEPT))
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)
    for first, last in ((0, 6), (8, 9)):
        response = await member.acknowledge((topic, 0, first, last, ACCEPT))
        equal(f"error for {first}-{last}", entry(response, topic).error_code, ErrorCode.NONE)


@case(
    "share-groups.acknowledge.failure-uses-the-epoch",
    "A request whose only partition fails uses its session epoch up.",
    "KIP-932; SharePartitionManager",
    needs=SHARE,
)
async def failure_uses_the_epoch(run: CaseRun) -> None:
    topic, member = await holding(run)
    epoch = member.epoch
    await member.acknowledge((topic, 0, 0, 9, 5))
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT), epoch=epoch)
    equal("error at the same epoch", response.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH)


@case(
    "share-groups.acknowledge.not-held",
    "Acknowledging records of another member gets INVALID_RECORD_STATE; their holder can still acknowledge them.",
    WINDOW,
    needs=SHARE,
)
async def not_held(run: CaseRun) -> None:
    topic, member = await holding(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0)
    response = await other.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error for the holder", entry(response, topic).error_code, ErrorCode.NONE)


@case(
    "share-groups.acknowledge.released-is-not-held",
    "A released record cannot be acknowledged.",
    WINDOW,
    needs=SHARE,
)
async def released_is_not_held(run: CaseRun) -> None:
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 5, 5, RELEASE))
    response = await member.acknowledge((topic, 0, 5, 5, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)


@case(
    "share-groups.acknowledge.twice",
    "A second acknowledgement gets INVALID_RECORD_STATE while the start offset has not passed the record.",
    WINDOW,
    needs=SHARE,
)
async def twice(run: CaseRun) -> None:
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 5, 9, ACCEPT))
    response = await member.acknowledge((topic, 0, 5, 9, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)


@case(
    "share-groups.acknowledge.below-the-start-offset",
    "Acknowledging records below the start offset is no error and has no effect.",
    WINDOW,
    needs=SHARE,
)
async def below_the_start_offset(run: CaseRun) -> None:
    topic, member = await holding(run)
    await run.produce(topic, 5)
    await member.take(topic)
    await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    response = await member.acknowledge((topic, 0, 0, 9, RELEASE))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.NONE)
    response = await member.acknowledge((topic, 0, 10, 14, RELEASE))
    equal("acquired again", await member.taken(topic), [(10, 14, 2)])


@case(
    "share-groups.acknowledge.partly-below-the-start-offset",
    "Of a batch that begins below the start offset, the rest is acknowledged.",
    WINDOW,
    needs=SHARE,
)
async def partly_below(run: CaseRun) -> None:
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 0, 4, ACCEPT))
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.NONE)
    await run.produce(topic, 1)
    equal("acquired next", await member.taken(topic), [(10, 10, 1)])


@case(
    "share-groups.acknowledge.parts-of-a-batch",
    "Parts of what was acquired together can be acknowledged one by one.",
    WINDOW,
    needs=SHARE,
)
async def parts_of_a_batch(run: CaseRun) -> None:
    topic, member = await holding(run)
    for first, last in ((8, 9), (0, 1), (4, 5), (2, 3), (6, 7)):
        response = await member.acknowledge((topic, 0, first, last, ACCEPT))
        equal(f"error for {first}-{last}", entry(response, topic).error_code, ErrorCode.NONE)
    await run.produce(topic, 1)
    equal("acquired next", await member.taken(topic), [(10, 10, 1)])


@case(
    "share-groups.acknowledge.over-several-batches",
    "One acknowledgement batch may cover several batches of the log.",
    WINDOW,
    needs=SHARE,
)
async def over_several_batches(run: CaseRun) -> None:
    topic = await run.topic()
    await run.produce(topic, 3, 3, 3)
    member = await share_member(run, await share_group(run, topic), topic)
    await member.take(topic)
    response = await member.acknowledge((topic, 0, 1, 7, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.NONE)
    await member.acknowledge((topic, 0, 0, 0, RELEASE), (topic, 0, 8, 8, RELEASE))
    equal("acquired again", await member.taken(topic), [(0, 0, 2), (8, 8, 2)])


@case(
    "share-groups.acknowledge.unknown-topic-id",
    "Acknowledgements for an unknown topic id get UNKNOWN_TOPIC_ID.",
    "KafkaApis.handleShareAcknowledgeRequest",
    needs=SHARE,
)
async def unknown_topic_id(run: CaseRun) -> None:
    _, member = await holding(run)
    unknown = CaseTopic("unknown", UNKNOWN_ID, {0: 0})
    response = await member.acknowledge((unknown, 0, 0, 9, ACCEPT))
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("error of the partition", entry(response, unknown).error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case(
    "share-groups.acknowledge.unknown-partition",
    "Acknowledgements for a partition that the topic does not have get UNKNOWN_TOPIC_OR_PARTITION.",
    "KafkaApis.handleShareAcknowledgeRequest",
    needs=SHARE,
)
async def unknown_partition(run: CaseRun) -> None:
    topic, member = await holding(run)
    response = await member.acknowledge((topic, 9, 0, 9, ACCEPT))
    equal("error of the partition", entry(response, topic, 9).error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
