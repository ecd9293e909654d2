"""Cases of key order, which only this proxy offers (sharegroups/README.md rules 74 to 78)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun, spans_of
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    FINAL_EPOCH,
    GAP,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    RENEW,
    ShareSessionMember,
    Spans,
    acquired,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.conformance.suite.transactional_producers import begin_transactions, check
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.compression import GZIP, NONE

NEEDS = ("share", "key-order")
RULE = "sharegroups/README.md rule {}"
ORDERED = {"share.ordering": "key"}
BLOCKED_MS = 300
"""Wait of a fetch that must acquire nothing."""
A, B, C = b"a", b"b", b"c"

Keys = Sequence[bytes | None]


async def append_keys(run: CaseRun, topic: CaseTopic, *batches: Keys, partition: int = 0, codec: int = NONE) -> None:
    """Append one batch for each list of keys. Raises SetUpFailed."""
    now = int(time.time() * 1000)
    for keys in batches:
        batch_records = [records.Record(key=key, value=b"value %d" % n, timestamp=now) for n, key in enumerate(keys)]
        check(
            (await run.append(topic, records.build_batch(0, batch_records, codec=codec), partition)).error_code,
            "Produce",
        )


async def ordered_member(run: CaseRun, *batches: Keys, **settings: str) -> tuple[CaseTopic, ShareSessionMember]:
    """Return a topic with one batch for each list of keys, and a member of a group with key order."""
    topic = await run.topic()
    await append_keys(run, topic, *batches)
    more = {name.replace("_", "."): value for name, value in settings.items()}
    group = await share_group(run, topic, settings=ORDERED | more)
    return topic, await share_member(run, group, topic)


async def blocked(member: ShareSessionMember, topic: CaseTopic) -> None:
    """Check that the member acquires nothing now."""
    equal("acquired while the key is blocked", acquired(await member.fetch(topic, wait_ms=BLOCKED_MS), topic), [])


@case("queues.order.one-at-a-time", RULE.format(74), needs=NEEDS)
async def one_at_a_time(run: CaseRun) -> None:
    """While a record is held, no later record of its key is acquired."""
    topic, member = await ordered_member(run, [A, B, A, B])
    equal("acquired records", await member.acquire(topic), [(0, 1, 1)])
    await blocked(member, topic)


@case("queues.order.across-batches", RULE.format(74), needs=NEEDS)
async def across_batches(run: CaseRun) -> None:
    """A record of an earlier batch blocks those of the same key in later batches."""
    topic, member = await ordered_member(run, [A], [A], [A])
    equal("acquired records", await member.acquire(topic), [(0, 0, 1)])
    await blocked(member, topic)
    await member.acknowledge((topic, 0, 0, 0, ACCEPT))
    equal("acquired next", await member.acquire(topic), [(1, 1, 1)])


@case_for_each(
    {"accepted": (ACCEPT,), "rejected": (REJECT,), "gap": (GAP,)},
    "queues.order.freed-{name}",
    RULE.format(74),
    needs=NEEDS,
)
async def freed(run: CaseRun, kind: int) -> None:
    """A record acknowledged with type {0} frees its key for the next record."""
    topic, member = await ordered_member(run, [A, A, A])
    equal("acquired records", await member.acquire(topic), [(0, 0, 1)])
    await member.acknowledge((topic, 0, 0, 0, kind))
    equal("acquired next", await member.acquire(topic), [(1, 1, 1)])


@case("queues.order.renewed", RULE.format(74), needs=(*NEEDS, "ShareAcknowledge:2"))
async def renewed(run: CaseRun) -> None:
    """A renewed record keeps its key blocked."""
    topic, member = await ordered_member(run, [A, A])
    await member.take(topic)
    response = await member.acknowledge((topic, 0, 0, 0, RENEW), renew=True)
    equal("error of the renewal", entry(response, topic).error_code, 0)
    await blocked(member, topic)


@case("queues.order.released", RULE.format(74), needs=NEEDS)
async def released(run: CaseRun) -> None:
    """A released record is delivered again before any later record of its key."""
    topic, member = await ordered_member(run, [A, A])
    await member.take(topic)
    await member.acknowledge((topic, 0, 0, 0, RELEASE))
    equal("acquired after the release", await member.acquire(topic), [(0, 0, 2)])
    await blocked(member, topic)


@case("queues.order.expired", RULE.format(74), needs=(*NEEDS, "short-locks"))
async def expired(run: CaseRun) -> None:
    """A record whose lock expired is delivered again before any later record of its key."""
    topic, member = await ordered_member(run, [A, A], share_record_lock_duration_ms="1000")
    await member.take(topic)
    equal("acquired after the lock expired", await member.acquire(topic), [(0, 0, 2)])


@case("queues.order.ended-session", RULE.format(74), needs=NEEDS)
async def ended_session(run: CaseRun) -> None:
    """A record that was held by an ended session is delivered before any later record of its key."""
    topic, member = await ordered_member(run, [A, A])
    await member.take(topic)
    await member.acknowledge(epoch=FINAL_EPOCH)
    other = await share_member(run, member.group, topic)
    equal("first offset acquired by another member", (await other.acquire(topic))[0][:2], (0, 0))
    await blocked(other, topic)


@case("queues.order.used-up", RULE.format(74), needs=(*NEEDS, "delivery-limit"))
async def used_up(run: CaseRun) -> None:
    """A record at its delivery limit frees its key for the next record."""
    topic, member = await ordered_member(run, [A, A], share_delivery_count_limit="2")
    for count in (1, 2):
        equal(f"acquired, delivery {count}", await member.acquire(topic), [(0, 0, count)])
        await member.acknowledge((topic, 0, 0, 0, RELEASE))
    equal("acquired after the limit", await member.acquire(topic), [(1, 1, 1)])


@case_for_each(
    {"without-key": (None, [(0, 2, 1)]), "empty-key": (b"", [(0, 0, 1)])},
    "queues.order.{name}",
    "sharegroups/README.md rule 75",
    needs=NEEDS,
)
async def special_key(run: CaseRun, key: bytes | None, expected: Spans) -> None:
    """Of three records with the key {0} these are acquired: {1}."""
    topic, member = await ordered_member(run, [key, key, key])
    equal("acquired records", await member.acquire(topic), expected)


@case("queues.order.compressed", RULE.format(75), needs=NEEDS)
async def compressed(run: CaseRun) -> None:
    """The keys of a compressed batch are compared."""
    topic, member = await ordered_member(run)
    await append_keys(run, topic, [A, B, A], codec=GZIP)
    equal("acquired records", await member.acquire(topic), [(0, 1, 1)])


@case_for_each(
    {
        "aborted": ("read_committed", "block nothing", [(2, 2, 1)]),
        "aborted-uncommitted": ("read_uncommitted", "block their keys", [(0, 0, 1)]),
    },
    "queues.order.{name}",
    RULE.format(75),
    needs=(*NEEDS, "isolation"),
)
async def aborted(run: CaseRun, isolation: str, _effect: str, expected: Spans) -> None:
    """With {0} the records of an aborted transaction {1}, and its marker is not acquired."""
    topic, member = await ordered_member(run, share_isolation_level=isolation)
    await abort_key(run, topic, A)
    await append_keys(run, topic, [A, A])
    equal("acquired records", await member.acquire(topic), expected)
    await blocked(member, topic)


async def abort_key(run: CaseRun, topic: CaseTopic, key: bytes) -> None:
    """Append one record in a transaction, and abort it. Raises SetUpFailed.

    EndTxn responds before the marker is appended, and an offset between them would be another one.
    """
    producer = await begin_transactions(run)
    check(await producer.add_partition(topic), "AddPartitionsToTxn")
    batch_records = [records.Record(key=key, value=b"aborted", timestamp=int(time.time() * 1000))]
    ids: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 0}
    data = records.build_batch(0, batch_records, is_transactional=True, **ids)
    check((await run.append(topic, data, transactional_id=producer.transactional_id)).error_code, "Produce")
    await producer.end(committed=False)

    async def has_marker() -> bool:
        return await run.end_offset(topic) == 2

    await run.until(has_marker, "the marker of the transaction")


@case("queues.order.other-keys", RULE.format(77), needs=NEEDS)
async def other_keys(run: CaseRun) -> None:
    """Blocked records do not hold up records of other keys after them."""
    topic, member = await ordered_member(run, [A, A, A, B, A, C])
    equal("acquired records", await member.acquire(topic), [(0, 0, 1), (3, 3, 1), (5, 5, 1)])


@case("queues.order.other-member", RULE.format(74), needs=NEEDS)
async def other_member(run: CaseRun) -> None:
    """A key that one member holds is blocked for another member, which gets records of other keys."""
    topic, member = await ordered_member(run, [A, A])
    await member.take(topic)
    other = await share_member(run, member.group, topic)
    await append_keys(run, topic, [A, B])
    equal("acquired by another member", await other.acquire(topic), [(3, 3, 1)])


@case("queues.order.partitions", RULE.format(74), needs=NEEDS)
async def two_partitions(run: CaseRun) -> None:
    """Records of one key in two partitions do not block each other."""
    topic = await run.topic(partitions=2)
    for partition in topic.partitions:
        await append_keys(run, topic, [A, A], partition=partition)
    member = await share_member(run, await share_group(run, topic, settings=ORDERED), topic)
    actual = [await member.acquire(topic, partition) for partition in topic.partitions]
    equal("acquired in each partition", actual, [[(0, 0, 1)], [(0, 0, 1)]])


@case("queues.order.groups", RULE.format(74), needs=NEEDS)
async def two_groups(run: CaseRun) -> None:
    """Records that one group holds do not block their keys in another group."""
    topic, member = await ordered_member(run, [A, A])
    await member.take(topic)
    other = await share_member(run, await share_group(run, topic, settings=ORDERED), topic)
    equal("acquired in another group", await other.acquire(topic), [(0, 0, 1)])


@case("queues.order.record-limit", "KIP-1206; sharegroups/README.md rule 78", needs=(*NEEDS, "ShareFetch:2"))
async def record_limit(run: CaseRun) -> None:
    """In the mode record_limit as many records are acquired as requested, of different keys."""
    topic, member = await ordered_member(run, [A, A, B, C])
    spans = await member.acquire(topic, mode=RECORD_LIMIT, max_records=2)
    equal("acquired records", spans, [(0, 0, 1), (2, 2, 1)])


@case("queues.order.whole-batches", RULE.format(78), needs=NEEDS)
async def whole_batches(run: CaseRun) -> None:
    """A batch with blocked records is sent whole, and AcquiredRecords name the others."""
    topic, member = await ordered_member(run, [A, A, B])
    response = await member.take(topic)
    equal("acquired records", acquired(response, topic), [(0, 0, 1), (2, 2, 1)])
    equal("batches", spans_of(entry(response, topic).records), [(0, 2, 3)])


@case("queues.order.scan-records", RULE.format(77), needs=NEEDS)
async def scan_records(run: CaseRun) -> None:
    """Records share.ordering.scan.records and more after the oldest unsettled one wait for it."""
    topic, member = await ordered_member(run, *[[A] * 10] * 9, [A] * 9 + [B], [C], share_ordering_scan_records="100")
    equal("acquired records", await member.acquire(topic), [(0, 0, 1), (99, 99, 1)])
    await blocked(member, topic)
    await member.acknowledge((topic, 0, 0, 0, ACCEPT))
    equal("acquired after it is settled", await member.acquire(topic), [(1, 1, 1), (100, 100, 1)])


@case("queues.order.beyond-the-locks", RULE.format(77), needs=(*NEEDS, "lock-limit"))
async def beyond_the_locks(run: CaseRun) -> None:
    """share.partition.max.record.locks limits held records only: other keys after more blocked records are
    delivered.
    """
    topic, member = await ordered_member(run, *[[A] * 10] * 12, [B], share_partition_max_record_locks="100")
    spans: list[tuple[int, int, int]] = []
    while len(spans) < 2:
        spans += await member.acquire(topic)
    equal("acquired records", spans, [(0, 0, 1), (120, 120, 1)])


@case("queues.order.switched-on", RULE.format(76), needs=(*NEEDS, "ShareFetch:2"))
async def switched_on(run: CaseRun) -> None:
    """When a group is switched to key order, a held record stays held and blocks its key."""
    topic = await run.topic()
    await append_keys(run, topic, [A, A, B])
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired first", await member.acquire(topic, mode=RECORD_LIMIT, max_records=1), [(0, 0, 1)])
    await run.cluster.configure_group(await run.connection(), member.group, ORDERED)
    equal("acquired in key order", await member.acquire(topic), [(2, 2, 1)])
    equal("error of the acknowledgement", await member.acknowledge_code((topic, 0, 0, 0, ACCEPT)), 0)
    equal("acquired after it is settled", await member.acquire(topic), [(1, 1, 1)])


@case("queues.order.switched-off", RULE.format(73), needs=NEEDS)
async def switched_off(run: CaseRun) -> None:
    """When key order is switched off, blocked records are delivered."""
    topic, member = await ordered_member(run, [A, A, A])
    equal("acquired in key order", await member.acquire(topic), [(0, 0, 1)])
    await run.cluster.configure_group(await run.connection(), member.group, {"share.ordering": "none"})
    equal("acquired without order", await member.acquire(topic), [(1, 2, 1)])


@case("queues.order.off-by-default", RULE.format(73), needs=NEEDS)
async def off_by_default(run: CaseRun) -> None:
    """Without share.ordering=key records of one key are acquired together."""
    topic = await run.topic()
    await append_keys(run, topic, [A, A, A])
    member = await share_member(run, await share_group(run, topic), topic)
    equal("acquired records", await member.acquire(topic), [(0, 2, 1)])


@case_for_each(
    {
        "unknown-order": ("share.ordering", "offset"),
        "scan-too-small": ("share.ordering.scan.records", "99"),
        "scan-no-number": ("share.ordering.scan.records", "many"),
    },
    "queues.order.refused-{name}",
    RULE.format(73),
    needs=NEEDS,
)
async def refused(run: CaseRun, name: str, value: str) -> None:
    """{0}={1} is refused with INVALID_CONFIG."""
    error = await run.cluster.alter_group(await run.connection(), run.group(), {name: value})
    equal("error", error.split(" ")[0], "INVALID_CONFIG")
