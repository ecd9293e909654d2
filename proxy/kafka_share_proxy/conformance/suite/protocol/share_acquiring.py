"""Cases of acquiring records: spans, limits of a request, modes, waiting, gaps, the window of locks."""

from __future__ import annotations

import time
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.case_run import CaseRun, spans_of, values_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.protocol.share_sessions import UNKNOWN_ID, ten_records, ten_taken
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    GAP,
    RECORD_LIMIT,
    RELEASE,
    SHARE,
    Spans,
    acquired,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

SECOND = (*SHARE, "ShareFetch:2")
ACQUIRE = "KIP-932; SharePartition.acquire"
WAIT_MS = 1500
PROMPT_S = 5.0
"""Seconds within which a response that need not wait must be there, on a busy machine."""


@case("share-groups.acquire.first-delivery", ACQUIRE, needs=SHARE)
async def first_delivery(run: CaseRun) -> None:
    """New records are acquired with delivery count 1 and returned with their bytes."""
    topic, member = await ten_records(run)
    response = await member.take(topic)
    partition = entry(response, topic)
    equal("acquired records", acquired(response, topic), [(0, 9, 1)])
    equal("batches in Records", spans_of(partition.records), [(0, 9, 10)])
    equal("values", values_of(partition.records), [(n, b"record %d" % n) for n in range(10)])
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("AcknowledgeErrorCode", partition.acknowledge_error_code, ErrorCode.NONE)


@case("share-groups.acquire.bytes-unchanged", "ShareFetchResponse.json (Records)", needs=SHARE)
async def bytes_unchanged(run: CaseRun) -> None:
    """The bytes of a batch are those of the log: its checksum, timestamps, headers and keys are unchanged."""
    topic = await run.topic()
    sent = [records.Record(b"key", b"value", (("name", b"content"), ("empty", None)), 1_700_000_000_000)]
    await run.append(topic, records.build_batch(0, sent))
    member = await share_member(run, await share_group(run, topic), topic)
    data = memoryview(entry(await member.take(topic), topic).records)
    true("checksum of the batch", records.has_valid_checksum(data), "valid")
    (read,) = records.decode_records(data)
    equal("record", read[:4], (b"key", b"value", (("name", b"content"), ("empty", None)), 1_700_000_000_000))


@case("share-groups.acquire.every-partition", ACQUIRE, needs=SHARE)
async def every_partition(run: CaseRun) -> None:
    """Each partition of a request returns its own records."""
    topic = await run.topic(3)
    for partition in range(3):
        await run.produce(topic, partition + 1, partition=partition)
    group = await share_group(run, topic)
    for partition in range(3):
        member = await share_member(run, group, topic, partition=partition)
        equal(f"acquired of partition {partition}", await member.acquire(topic, partition), [(0, partition, 1)])


@case("share-groups.acquire.held-by-another", ACQUIRE, needs=SHARE)
async def held_by_another(run: CaseRun) -> None:
    """Records that one member holds are not delivered to another of the group; new ones are."""
    topic, member = await ten_taken(run)
    await run.produce(topic, 5)
    other = await share_member(run, member.group, topic)
    equal("acquired by another member", await other.acquire(topic), [(10, 14, 1)])


@case("share-groups.acquire.held-by-the-same", ACQUIRE, needs=SHARE)
async def held_by_the_same(run: CaseRun) -> None:
    """Records that a member holds are not delivered to it again."""
    topic, member = await ten_taken(run)
    response = await member.fetch(topic, wait_ms=300)
    equal("acquired records", acquired(response, topic), [])


@case("share-groups.acquire.two-groups", "KIP-932", needs=SHARE)
async def two_groups(run: CaseRun) -> None:
    """Each of two groups gets every record."""
    topic, member = await ten_records(run)
    other = await share_member(run, await share_group(run, topic), topic)
    equal("acquired in the first group", await member.acquire(topic), [(0, 9, 1)])
    equal("acquired in the second group", await other.acquire(topic), [(0, 9, 1)])


@case(
    "share-groups.acquire.unknown-topic-id",
    "KIP-932; ErroneousAndValidPartitionData",
    needs=SHARE,
    differs=dict.fromkeys(("4.2", "4.3"), "a ShareFetch that names an unknown topic id fails as a whole with -1"),
)
async def unknown_topic_id(run: CaseRun) -> None:
    """An unknown topic id gets UNKNOWN_TOPIC_ID for its partition; the other partitions are served."""
    topic, member = await ten_records(run)
    unknown = CaseTopic("unknown", UNKNOWN_ID, {0: topic.leaders[0]})
    response = await member.fetch(unknown, topic, wait_ms=0)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("error of the partition", entry(response, unknown).error_code, ErrorCode.UNKNOWN_TOPIC_ID)


@case("share-groups.acquire.whole-batch", "KIP-1206; SharePartition.acquireNewBatchRecords", needs=SHARE)
async def whole_batch(run: CaseRun) -> None:
    """In mode batch_optimized a batch is acquired whole, even beyond MaxRecords."""
    topic, member = await ten_records(run)
    equal("acquired with MaxRecords 4", await member.acquire(topic, max_records=4), [(0, 9, 1)])


@case_for_each(
    {str(count): (count,) for count in (1, 2, 5, 9)},
    "share-groups.acquire.max-records-{name}",
    "KIP-932; SharePartition.acquire",
    needs=SHARE,
)
async def max_records(run: CaseRun, count: int) -> None:
    """With batches of one record, MaxRecords {0} acquires {0} of ten."""
    topic = await run.topic()
    await run.produce(topic, *[1] * 10)
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired records", await member.acquire(topic, max_records=count), [(0, count - 1, 1)])


@case(
    "share-groups.acquire.max-records-reached-in-a-batch",
    "KIP-932; SharePartition.lastOffsetFromBatchWithRequestOffset",
    needs=SHARE,
)
async def reached_in_a_batch(run: CaseRun) -> None:
    """The batch in which MaxRecords is reached is the last one acquired."""
    topic = await run.topic()
    await run.produce(topic, 3, 3, 3)
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired with MaxRecords 4", await member.acquire(topic, max_records=4), [(0, 5, 1)])
    equal("acquired next", await member.acquire(topic), [(6, 8, 1)])


@case_for_each(
    {
        "1": (1, [(n, n, 1) for n in range(6)]),
        "2": (2, [(0, 1, 1), (2, 3, 1), (4, 5, 1)]),
        "4": (4, [(0, 3, 1), (4, 5, 1)]),
        "6": (6, [(0, 5, 1)]),
    },
    "share-groups.acquire.batch-size-{name}",
    "KIP-932; SharePartition.createBatches",
    needs=SHARE,
)
async def batch_size(run: CaseRun, size: int, expected: Spans) -> None:
    """BatchSize {0} splits the acquired records of six batches of one record, only where a batch begins."""
    topic = await run.topic()
    await run.produce(topic, *[1] * 6)
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired records", await member.acquire(topic, batch_size=size), expected)


@case("share-groups.acquire.batch-size-keeps-batches", "KIP-932; SharePartition.createBatches", needs=SHARE)
async def batch_size_keeps_batches(run: CaseRun) -> None:
    """BatchSize never splits a batch of the log."""
    topic = await run.topic()
    await run.produce(topic, 4, 4)
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired with BatchSize 1", await member.acquire(topic, batch_size=1), [(0, 3, 1), (4, 7, 1)])


@case_for_each(
    {str(count): (count,) for count in (1, 3, 7, 10)},
    "share-groups.acquire.record-limit-{name}",
    "KIP-1206; SharePartition.acquire",
    needs=SECOND,
)
async def record_limit(run: CaseRun, count: int) -> None:
    """In mode record_limit exactly {0} of the ten records of a batch are acquired; its bytes are whole."""
    topic, member = await ten_records(run)
    response = await member.take(topic, max_records=count, mode=RECORD_LIMIT)
    equal("acquired records", acquired(response, topic), [(0, count - 1, 1)])
    equal("batches in Records", spans_of(entry(response, topic).records), [(0, 9, 10)])


@case("share-groups.acquire.record-limit-continues", "KIP-1206", needs=SECOND)
async def record_limit_continues(run: CaseRun) -> None:
    """In mode record_limit the next fetch continues within the batch."""
    topic, member = await ten_records(run)
    spans = [await member.acquire(topic, max_records=4, mode=RECORD_LIMIT) for _ in range(3)]
    equal("acquired by three fetches", spans, [[(0, 3, 1)], [(4, 7, 1)], [(8, 9, 1)]])


@case("share-groups.acquire.record-limit-another-member", "KIP-1206", needs=SECOND)
async def record_limit_another_member(run: CaseRun) -> None:
    """The records of a batch that record_limit left are delivered to another member immediately, with count 1."""
    topic, member = await ten_records(run)
    await member.take(topic, max_records=4, mode=RECORD_LIMIT)
    other = await share_member(run, member.group, topic)
    equal("acquired by another member", await other.acquire(topic), [(4, 9, 1)])


@case("share-groups.acquire.record-limit-ignores-batch-size", "KIP-1206; SharePartition.acquire", needs=SECOND)
async def record_limit_ignores_batch_size(run: CaseRun) -> None:
    """In mode record_limit BatchSize does not split the acquired records."""
    topic = await run.topic()
    await run.produce(topic, *[1] * 6)
    member = await share_member(run, await share_group(run, topic), topic)
    spans = await member.acquire(topic, max_records=5, batch_size=1, mode=RECORD_LIMIT)
    equal("acquired records", spans, [(0, 4, 1)])


@case("share-groups.acquire.record-limit-over-batches", "KIP-1206", needs=SECOND)
async def record_limit_over_batches(run: CaseRun) -> None:
    """MaxRecords of record_limit counts over several batches."""
    topic = await run.topic()
    await run.produce(topic, 3, 3, 3)
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired records", await member.acquire(topic, max_records=5, mode=RECORD_LIMIT), [(0, 4, 1)])
    equal("acquired next", await member.acquire(topic, max_records=5, mode=RECORD_LIMIT), [(5, 5, 1), (6, 8, 1)])


@case_for_each(
    {"max-records": ({"max_records": 0},), "max-bytes": ({"max_bytes": 0},)},
    "share-groups.acquire.zero-{name}",
    "KIP-932; SharePartitionManager.fetchMessages",
    needs=SHARE,
)
async def zero_amount(run: CaseRun, amount: dict[str, Any]) -> None:
    """A ShareFetch with {0} returns immediately, without records."""
    topic, member = await ten_records(run)
    started_at = time.monotonic()
    response = await member.fetch(topic, wait_ms=10_000, **amount)
    true("duration", time.monotonic() - started_at < PROMPT_S, f"less than {PROMPT_S} s")
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("acquired records", acquired(response, topic), [])


@case("share-groups.acquire.waits-max-wait", "KIP-932; DelayedShareFetch", needs=SHARE)
async def waits_max_wait(run: CaseRun) -> None:
    """Without records a ShareFetch waits for MaxWaitMs and returns no partition."""
    _, member = await ten_taken(run)
    started_at = time.monotonic()
    response = await member.fetch(wait_ms=WAIT_MS)
    true("duration", time.monotonic() - started_at >= 0.9 * WAIT_MS / 1000, f"at least {WAIT_MS} ms")
    equal("partitions in the response", list(response.responses), [])


@case("share-groups.acquire.waits-for-records", "KIP-932; DelayedShareFetch", needs=SHARE)
async def waits_for_records(run: CaseRun) -> None:
    """A waiting ShareFetch returns when a record is produced."""
    topic, member = await ten_taken(run)
    started_at = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_produce_later, run, topic)
        response = await member.fetch(wait_ms=20_000)
    true("duration", time.monotonic() - started_at < 15, "less than MaxWaitMs")
    equal("acquired records", acquired(response, topic), [(10, 10, 1)])


async def _produce_later(run: CaseRun, topic: CaseTopic) -> None:
    await trio.sleep(0.3)
    await run.produce(topic, 1)


@case(
    "share-groups.acquire.released-while-waiting",
    "KIP-932; DelayedShareFetch (an idle 4.3.0 broker completes it at the end of MaxWaitMs)",
    needs=SHARE,
)
async def released_while_waiting(run: CaseRun) -> None:
    """A waiting ShareFetch returns records that another member releases, at the latest when its wait ends."""
    topic, member = await ten_records(run)
    other = await share_member(run, member.group, topic)
    await member.take(topic)

    async def release_later() -> None:
        await trio.sleep(0.3)
        await member.acknowledge((topic, 0, 0, 9, RELEASE))

    await other.fetch(topic, wait_ms=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(release_later)
        response = await other.fetch(wait_ms=2 * WAIT_MS)
    equal("acquired records", acquired(response, topic), [(0, 9, 2)])


@case("share-groups.acquire.max-bytes-returns-one-batch", "KIP-74; ShareFetchRequest.json (MaxBytes)", needs=SHARE)
async def max_bytes_returns_one_batch(run: CaseRun) -> None:
    """A batch larger than MaxBytes is returned whole."""
    topic = await run.topic()
    await run.produce(topic, [b"x" * 5000], [b"y" * 5000])
    member = await share_member(run, await share_group(run, topic), topic)
    response = await member.take(topic, max_bytes=1000)
    equal("acquired records", acquired(response, topic), [(0, 0, 1)])
    equal("batches in Records", spans_of(entry(response, topic).records), [(0, 0, 1)])


@case(
    "share-groups.acquire.start-offset-inside-a-batch",
    "KIP-932; SharePartition.acquire",
    needs=(*SHARE, "AlterShareGroupOffsets:0"),
)
async def start_offset_inside_a_batch(run: CaseRun) -> None:
    """A share partition that begins inside a batch acquires from its start offset; the bytes are the whole batch."""
    topic = await run.topic(count=10)
    member = await share_member(run, await share_group(run, topic, start=4), topic)
    response = await member.take(topic)
    equal("acquired records", acquired(response, topic), [(4, 9, 1)])
    equal("batches in Records", spans_of(entry(response, topic).records), [(0, 9, 10)])


@case("share-groups.acquire.released-before-new", ACQUIRE, needs=SHARE)
async def released_before_new(run: CaseRun) -> None:
    """Released records are delivered before new ones, with delivery count 2."""
    topic, member = await ten_taken(run)
    await member.acknowledge((topic, 0, 0, 9, RELEASE))
    await run.produce(topic, 5)
    equal("acquired records", await member.acquire(topic), [(0, 9, 2), (10, 14, 1)])


@case("share-groups.acquire.partly-released", ACQUIRE, needs=SHARE)
async def partly_released(run: CaseRun) -> None:
    """Only the released records of a partly released batch are delivered again."""
    topic, member = await ten_taken(run)
    await member.acknowledge((topic, 0, 2, 3, RELEASE), (topic, 0, 6, 7, RELEASE))
    equal("acquired records", await member.acquire(topic), [(2, 3, 2), (6, 7, 2)])


@case(
    "share-groups.acquire.different-counts-are-different-spans",
    "ShareFetchResponse.json (AcquiredRecords)",
    needs=SHARE,
)
async def different_counts(run: CaseRun) -> None:
    """Records with different delivery counts are in different entries of AcquiredRecords."""
    topic, member = await ten_taken(run)
    await member.acknowledge((topic, 0, 0, 4, RELEASE))
    await member.take(topic)
    await member.acknowledge((topic, 0, 0, 9, RELEASE))
    equal("acquired records", await member.acquire(topic), [(0, 4, 3), (5, 9, 2)])


@case("share-groups.acquire.delivery-count-never-lowered", "KIP-932; SharePartition (4.2 and later)", needs=SHARE)
async def delivery_count(run: CaseRun) -> None:
    """Each delivery has a count one higher than the last, however it ended."""
    topic, member = await ten_records(run)
    watcher = await share_member(run, member.group, topic)
    counts = []
    for number in range(4):
        response = await member.take(topic)
        counts.append(acquired(response, topic)[0][2])
        if number % 2:
            await watcher.fetch(topic, epoch=0, wait_ms=0)
            await member.acknowledge(epoch=-1)
        else:
            await member.acknowledge((topic, 0, 0, 9, RELEASE))
    equal("delivery counts", counts, [1, 2, 3, 4])


@case("share-groups.acquire.deleted-records", "KIP-932; SharePartition.updateCacheAndOffsets", needs=SHARE)
async def deleted_records(run: CaseRun) -> None:
    """After the log start moved past the start offset, delivery continues at the log start, without an error."""
    topic, member = await ten_records(run)
    await run.delete_records(topic, 6)
    response = await member.take(topic)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.NONE)
    equal("acquired records", acquired(response, topic), [(6, 9, 1)])


@case("share-groups.acquire.held-below-the-log-start", "KIP-932; SharePartition.acknowledge", needs=SHARE)
async def held_below_the_log_start(run: CaseRun) -> None:
    """Acknowledging held records below a new log start is no error."""
    topic, member = await ten_taken(run)
    await run.delete_records(topic, 10)
    await run.produce(topic, 1)
    equal("acquired after the deletion", await member.acquire(topic), [(10, 10, 1)])
    equal("error of the acknowledgement", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.NONE)


@case("share-groups.acquire.compacted-gaps", "KIP-932; AcknowledgeType.GAP", needs=SHARE)
async def gaps(run: CaseRun) -> None:
    """Offsets without records inside a batch are acquired like others, and are acknowledged as gaps."""
    topic, member = await ten_taken(run)
    equal("error", await member.acknowledge_code((topic, 0, 0, 9, [ACCEPT, GAP] * 5)), ErrorCode.NONE)
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(10, 10, 1)])
