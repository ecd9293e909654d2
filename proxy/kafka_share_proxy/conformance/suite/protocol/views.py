"""Cases of views: topics that show slices of the partitions of another topic."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun, values_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.partition_reads import read
from kafka_share_proxy.conformance.suite.protocol.committed_offsets import commit, committed
from kafka_share_proxy.conformance.suite.protocol.log_offsets import delete, list_offsets
from kafka_share_proxy.conformance.suite.transactional_producers import begin_transactions
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import key_hash, records

NEEDS = ("views",)
RULES = "views/README.md rule"
STRIPE = 64


async def view_of(run: CaseRun, base: CaseTopic, cut: str) -> CaseTopic:
    """Return the view of a topic, created by a request that needs it."""
    name = f"__view.{cut}.{base.name}"
    run.cluster.topics.add(name)
    shown = await run.cluster.find_topic(await run.connection(), name)
    true("view in Metadata", shown is not None, "shown as a topic")
    topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    await run.request("ListOffsets", await run.leader(base), replica_id=-1, topics=topics)
    return await run.cluster.await_topic(await run.connection(), name, len(shown.leaders if shown else ()))


async def keyed(run: CaseRun, count: int = 40) -> CaseTopic:
    """Return a topic with keyed records, and every fifth without a key."""
    base = await run.topic()
    for start in range(0, count, 10):
        keys = [None if n % 5 == 0 else b"key %d" % n for n in range(start, start + 10)]
        batch_records = [records.Record(key=key, value=b"value") for key in keys]
        await run.append(base, records.build_batch(0, batch_records))
    return base


async def read_slot(run: CaseRun, view: CaseTopic, slot: int, end: int) -> list[records.Record]:
    """Read a slot as a consumer does, from offset 0 to the end of the base."""
    position, decoded = 0, []
    while position < end:
        partition = await read(run, view, partition=slot, offset=position, max_wait_ms=2000, min_bytes=1)
        equal("ErrorCode", partition.error_code, ErrorCode.NONE)
        data = memoryview(partition.records or b"")
        for batch in records.iter_batches(data):
            if not batch.is_control:
                decoded += records.decode_records(data[batch.position : batch.end])
            position = max(position, batch.last_offset + 1)
        true("position after a fetch", len(data), "advanced by records or a filler", position)
    return decoded


@case_for_each(
    {"r2": ("r2", 2), "r8": ("r8", 8), "s2": ("s2", 2), "s3": ("s3", 3)},
    "views.metadata.partitions-{name}",
    f"{RULES} 3, 11, 13",
    needs=NEEDS,
)
async def partitions(run: CaseRun, cut: str, slots: int) -> None:
    """The view {0} of a topic with two partitions has 2 * {1} partitions, led as those of the base."""
    base = await run.topic(2)
    view = await view_of(run, base, cut)
    equal("leaders", dict(view.leaders), {p * slots + r: base.leaders[p] for p in (0, 1) for r in range(slots)})


@case_for_each(
    {name: (name,) for name in ("r1", "r0", "r02", "r1025", "x2", "s1", "r2.__view.r2", "pnone")},
    "views.metadata.invalid-{name}",
    f"{RULES} 2",
    needs=NEEDS,
)
async def invalid_name(run: CaseRun, cut: str) -> None:
    """The name __view.{0}.BASE is no topic: INVALID_TOPIC_EXCEPTION."""
    base = await run.topic()
    name = f"__view.{cut}.{base.name}"
    response = await run.request("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
    equal("ErrorCode", response.topics[0].error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)


@case("views.metadata.without-base", f"{RULES} 52", needs=NEEDS)
async def without_base(run: CaseRun) -> None:
    """A view of a topic that does not exist gets UNKNOWN_TOPIC_OR_PARTITION."""
    name = f"__view.r2.{run.name('none')}"
    response = await run.request("Metadata", topics=[{"name": name}], allow_auto_topic_creation=False)
    equal("ErrorCode", response.topics[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case("views.metadata.not-in-all", f"{RULES} 15", needs=NEEDS)
async def not_in_all(run: CaseRun) -> None:
    """Metadata of all topics leaves views out."""
    view = await view_of(run, await run.topic(), "r2")
    response = await run.request("Metadata", topics=None)
    equal("listed", [each.name for each in response.topics if each.name == view.name], [])


@case("views.metadata.described-only", f"{RULES} 11", needs=NEEDS)
async def described_only(run: CaseRun) -> None:
    """Metadata of a view creates no topic."""
    base = await run.topic()
    for _ in range(2):
        response = await run.request("Metadata", topics=[{"name": f"__view.r2.{base.name}"}])
        equal("TopicId", bytes(response.topics[0].topic_id), bytes(16))


@case_for_each({"r2": (2,), "r8": (8,)}, "views.slots.by-key-{name}", f"{RULES} 4, 5", needs=NEEDS)
async def by_key(run: CaseRun, slots: int) -> None:
    """In a view of {0} key ranges each record is in the slot (murmur2 of its key * {0}) >> 32, and in no other."""
    base = await keyed(run)
    view = await view_of(run, base, f"r{slots}")
    expected: dict[int, list[int]] = {slot: [] for slot in range(slots)}
    for offset in range(40):
        key = None if offset % 5 == 0 else b"key %d" % offset
        expected[key_hash.hash_of_record(key, offset) * slots >> 32].append(offset)
    actual = {slot: [each.offset for each in await read_slot(run, view, slot, 40)] for slot in range(slots)}
    equal("offsets by slot", actual, expected)


@case("views.slots.stripes", f"{RULES} 1", needs=NEEDS)
async def stripes(run: CaseRun) -> None:
    """In a view of two stripes offset n is in slot (n / 64) mod 2."""
    base = await run.topic()
    await run.produce(base, 50, 50, 50)
    view = await view_of(run, base, "s2")
    actual = {slot: [each.offset for each in await read_slot(run, view, slot, 150)] for slot in (0, 1)}
    expected = {slot: [n for n in range(150) if n // STRIPE % 2 == slot] for slot in (0, 1)}
    equal("offsets by slot", actual, expected)


@case("views.fetch.unchanged-records", f"{RULES} 37", needs=NEEDS)
async def unchanged_records(run: CaseRun) -> None:
    """Records of a view have offset, key, value and timestamp of the base."""
    base = await run.topic()
    batch_records = [
        records.Record(b"key %d" % n, b"value %d" % n, (("h", b"x"),), 1_700_000_000_000 + n) for n in range(10)
    ]
    await run.append(base, records.build_batch(0, batch_records))
    view = await view_of(run, base, "r2")
    decoded = [each for slot in (0, 1) for each in await read_slot(run, view, slot, 10)]
    decoded.sort(key=lambda each: each.offset)
    equal("records", [each[:4] for each in decoded], [each[:4] for each in batch_records])


@case("views.fetch.filler", f"{RULES} 31, 32", needs=NEEDS)
async def filler(run: CaseRun) -> None:
    """A slot without a matching record gets a control batch that ends at the last offset."""
    base = await run.topic()
    await run.append(base, records.build_batch(0, [records.Record(key=b"one key", value=b"v")] * 5))
    view = await view_of(run, base, "r2")
    empty = 1 - (key_hash.hash_of_record(b"one key", 0) * 2 >> 32)
    data = memoryview((await read(run, view, partition=empty, max_wait_ms=2000, min_bytes=1)).records)
    (batch,) = records.iter_batches(data)
    actual = (batch.is_control, batch.last_offset, batch.producer_id, batch.records_count)
    equal("control batch", actual, (True, 4, -1, 1))
    (record,) = records.decode_records(data)
    equal("marker", (record.offset, record.key), (4, b"\0\0\0\1"))


@case("views.fetch.watermarks", f"{RULES} 24", needs=NEEDS)
async def watermarks(run: CaseRun) -> None:
    """A view's high watermark and log start offset are those of the base."""
    base = await keyed(run)
    await run.delete_records(base, 7)
    view = await view_of(run, base, "r2")
    partition = await read(run, view, partition=1, offset=7)
    equal("watermarks", (partition.high_watermark, partition.log_start_offset), (40, 7))


@case("views.fetch.out-of-range", f"{RULES} 27", needs=NEEDS)
async def out_of_range(run: CaseRun) -> None:
    """A Fetch beyond the end of the base gets OFFSET_OUT_OF_RANGE."""
    view = await view_of(run, await keyed(run), "r2")
    equal("ErrorCode", (await read(run, view, offset=99)).error_code, ErrorCode.OFFSET_OUT_OF_RANGE)


@case("views.fetch.aborted", f"{RULES} 35", needs=NEEDS)
async def aborted(run: CaseRun) -> None:
    """read_committed leaves aborted records out of a view."""
    base = await run.topic(count=2)
    producer = await begin_transactions(run)
    await producer.append(base, 3)
    await producer.end(committed=False)

    async def ended() -> bool:
        return await run.end_offset(base, isolation=1) == 6

    await run.until(ended, "the abort marker")
    view = await view_of(run, base, "r2")
    actual = []
    for slot in (0, 1):
        partition = await read(run, view, partition=slot, isolation_level=1, max_wait_ms=1000, min_bytes=1)
        equal("AbortedTransactions", list(partition.aborted_transactions or ()), [])
        actual += [offset for offset, _ in values_of(partition.records)]
    equal("offsets", sorted(actual), [0, 1])


@case_for_each({"earliest": (-2, 3), "latest": (-1, 40)}, "views.list-offsets.{name}", f"{RULES} 29", needs=NEEDS)
async def offsets(run: CaseRun, timestamp: int, offset: int) -> None:
    """ListOffsets {0} of a view returns the base's offset {1}."""
    base = await keyed(run)
    await run.delete_records(base, 3)
    view = await view_of(run, base, "r2")
    for slot in (0, 1):
        equal(f"offset of slot {slot}", (await list_offsets(run, view, timestamp, slot)).offset, offset)


@case("views.refused.produce", f"{RULES} 48", needs=NEEDS)
async def produce(run: CaseRun) -> None:
    """Produce to a view gets INVALID_TOPIC_EXCEPTION."""
    base = await run.topic()
    view = await view_of(run, base, "r2")
    response = await run.append(view, records.build_batch(0, [records.Record(value=b"v")]))
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION)
    equal("end of the base", await run.end_offset(base), 0)


@case("views.refused.delete-records", f"{RULES} 49", needs=NEEDS)
async def delete_records(run: CaseRun) -> None:
    """DeleteRecords of a view gets POLICY_VIOLATION."""
    base = await keyed(run)
    view = await view_of(run, base, "r2")
    equal("ErrorCode", (await delete(run, view, 5)).error_code, ErrorCode.POLICY_VIOLATION)
    equal("earliest offset of the base", (await list_offsets(run, base, -2)).offset, 0)


@case("views.refused.partitions", f"{RULES} 49", needs=NEEDS)
async def create_partitions(run: CaseRun) -> None:
    """CreatePartitions of a view gets POLICY_VIOLATION."""
    view = await view_of(run, await run.topic(), "r2")
    requested = [{"name": view.name, "count": 9, "assignments": None}]
    response = await run.request("CreatePartitions", topics=requested, timeout_ms=9000)
    equal("ErrorCode", response.results[0].error_code, ErrorCode.POLICY_VIOLATION)


@case_for_each(
    {"wrong": (3, ErrorCode.INVALID_PARTITIONS), "right": (2, ErrorCode.NONE), "default": (-1, ErrorCode.NONE)},
    "views.create.{name}",
    f"{RULES} 50",
    needs=NEEDS,
)
async def create(run: CaseRun, count: int, code: ErrorCode) -> None:
    """CreateTopics of a view r2 of one partition with {0} partitions gets {1.name}."""
    base = await run.topic()
    name = f"__view.r2.{base.name}"
    run.cluster.topics.add(name)
    requested = {"name": name, "num_partitions": count, "replication_factor": -1}
    response = await run.request("CreateTopics", topics=[requested], timeout_ms=9000)
    equal("ErrorCode", response.topics[0].error_code, code)


@case("views.refused.share-group", f"{RULES} 51", needs=(*NEEDS, "share"))
async def share_group_refused(run: CaseRun) -> None:
    """A share group on a view gets INVALID_REQUEST."""
    view = await view_of(run, await run.topic(), "r2")
    group = run.group()
    values: dict[str, Any] = {"group_id": group, "member_id": "m", "member_epoch": 0}
    on = await run.coordinator(group)
    response = await run.request("ShareGroupHeartbeat", on, subscribed_topic_names=[view.name], **values)
    equal("ErrorCode", response.error_code, ErrorCode.INVALID_REQUEST)


@case("views.commits.by-slot", f"{RULES} 9", needs=NEEDS)
async def commits(run: CaseRun) -> None:
    """Each slot of a view has its own committed offset."""
    view, group = await view_of(run, await keyed(run), "r2"), run.group()
    for slot in (0, 1):
        equal("error of the commit", await commit(run, group, view, 10 + slot, slot), ErrorCode.NONE)
    actual = [(await committed(run, group, view, slot)).committed_offset for slot in (0, 1)]
    equal("committed offsets", actual, [10, 11])
