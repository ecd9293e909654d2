"""Cases of limits of share groups: the window of locks, deliveries, throttling."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.protocol.share_sessions import ten_taken
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    SHARE,
    acquired,
    alter_offsets,
    share_group,
    share_member,
)


@case(
    "share-groups.acquire.window-of-locks", "KIP-1240; SharePartition.canAcquireRecords", needs=(*SHARE, "lock-limit")
)
async def window_of_locks(run: CaseRun) -> None:
    """With share.partition.max.record.locks records held, no new record is acquired before some are settled."""
    topic = await run.topic()
    await run.produce(topic, 50, 50, 50)
    group = await share_group(run, topic, settings={"share.partition.max.record.locks": "100"})
    member = await share_member(run, group, topic)
    equal("acquired records", await member.acquire(topic, batch_size=1000), [(0, 99, 1)])
    equal("acquired with a full window", acquired(await member.fetch(topic, wait_ms=300), topic), [])
    await member.acknowledge((topic, 0, 0, 49, ACCEPT))
    equal("acquired after settling", await member.acquire(topic), [(100, 149, 1)])


@case(
    "share-groups.acquire.window-counts-settled-records",
    "KIP-932; SharePartition.canAcquireRecords",
    needs=(*SHARE, "lock-limit"),
)
async def window_counts_settled(run: CaseRun) -> None:
    """Settled records after an unsettled one count for the limit: the window is from the start offset on."""
    topic = await run.topic()
    await run.produce(topic, 100, 10)
    group = await share_group(run, topic, settings={"share.partition.max.record.locks": "100"})
    member = await share_member(run, group, topic)
    equal("acquired records", await member.acquire(topic), [(0, 99, 1)])
    await member.acknowledge((topic, 0, 1, 99, ACCEPT))
    equal("acquired behind an unsettled record", acquired(await member.fetch(topic, wait_ms=300), topic), [])
    await member.acknowledge((topic, 0, 0, 0, ACCEPT))
    equal("acquired after it is settled", await member.acquire(topic), [(100, 109, 1)])


@case("share-groups.acquire.released-in-a-full-window", "KIP-932; SharePartition.acquire", needs=(*SHARE, "lock-limit"))
async def released_in_a_full_window(run: CaseRun) -> None:
    """A released record inside a full window is delivered again."""
    topic = await run.topic()
    await run.produce(topic, 100, 10)
    group = await share_group(run, topic, settings={"share.partition.max.record.locks": "100"})
    member = await share_member(run, group, topic)
    await member.take(topic)
    await member.acknowledge((topic, 0, 40, 41, RELEASE))
    equal("acquired records", await member.acquire(topic), [(40, 41, 2)])


@case(
    "share-groups.acquire.delivery-limit",
    "KIP-1240; SharePartition (share.delivery.count.limit)",
    needs=(*SHARE, "delivery-limit"),
)
async def delivery_limit(run: CaseRun) -> None:
    """Records that were released as often as the delivery limit says are not delivered again."""
    topic = await run.topic(count=10)
    group = await share_group(run, topic, settings={"share.delivery.count.limit": "2"})
    member = await share_member(run, group, topic)
    for count in (1, 2):
        equal(f"acquired, delivery {count}", await member.acquire(topic), [(0, 9, count)])
        await member.acknowledge((topic, 0, 0, 9, RELEASE))
    await run.produce(topic, 1)
    equal("acquired after the limit", await member.acquire(topic), [(10, 10, 1)])


@case("share-groups.acquire.default-delivery-limit", "group.share.delivery.count.limit (default 5)", needs=SHARE)
async def default_delivery_limit(run: CaseRun) -> None:
    """By default a record is delivered five times."""
    topic = await run.topic(count=1)
    member = await share_member(run, await share_group(run, topic), topic)
    for count in range(1, 6):
        equal(f"acquired, delivery {count}", await member.acquire(topic), [(0, 0, count)])
        await member.acknowledge((topic, 0, 0, 0, RELEASE))
    await run.produce(topic, 1)
    equal("acquired after the limit", await member.acquire(topic), [(1, 1, 1)])


@case(
    "share-groups.acquire.throttled-near-the-limit",
    "SharePartition.acquireSubsetBatchRecords (4.2 and later)",
    needs=SHARE,
)
async def throttled(run: CaseRun) -> None:
    """With a limit of 5 a batch of 100 is delivered as 100, 100, 100, then 50, then one record."""
    topic = await run.topic(count=100)
    member = await share_member(run, await share_group(run, topic), topic)
    actual = []
    for _ in range(5):
        spans = await member.acquire(topic)
        actual.append((spans[0][0], spans[-1][1], spans[0][2]))
        await member.acknowledge(*((topic, 0, first, last, RELEASE) for first, last, _ in spans))
    equal("deliveries", actual, [(0, 99, 1), (0, 99, 2), (0, 99, 3), (0, 49, 4), (0, 0, 5)])


@case("share-groups.acquire.rejected-never-again", "KIP-932; AcknowledgeType.REJECT", needs=SHARE)
async def rejected(run: CaseRun) -> None:
    """Rejected records are never delivered again."""
    topic, member = await ten_taken(run)
    await member.acknowledge((topic, 0, 0, 9, REJECT))
    await run.produce(topic, 2)
    equal("acquired next", await member.acquire(topic), [(10, 11, 1)])


@case(
    "share-groups.acquire.altered-start-offset",
    "KIP-932; GroupCoordinatorService.alterShareGroupOffsets",
    needs=(*SHARE, "AlterShareGroupOffsets:0"),
)
async def altered_start_offset(run: CaseRun) -> None:
    """AlterShareGroupOffsets drops what was settled: delivery begins at the new offset with count 1."""
    topic, member = await ten_taken(run)
    await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    await member.connection.aclose()
    await alter_offsets(run, member.group, topic, start=3)
    later = await share_member(run, member.group, topic)
    equal("acquired records", await later.acquire(topic), [(3, 9, 1)])
