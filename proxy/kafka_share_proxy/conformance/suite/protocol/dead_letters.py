"""Cases of dead letters (KIP-1191), where the peer offers them."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.partition_reads import read
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    ShareSessionMember,
    acquired,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

NEEDS = ("share", "dead-letters")
KIP = "KIP-1191"
REJECTED = b"Offset rejected by client."
EXHAUSTED = b"Offset delivery count exceeded the threshold."
PREFIX = "dlq."
"""errors.deadletterqueue.topic.name.prefix by default."""
EARLY_MS = 1
"""Timestamp of the records that become dead letters."""
PERMISSION = "errors.deadletterqueue.group.enable"
LETTERS_TOPIC = "errors.deadletterqueue.topic.name"


def two_records() -> bytes:
    """Return a batch of two records with keys, values, headers and an early timestamp."""
    batch_records = [
        records.Record(key=b"key %d" % n, value=b"value %d" % n, headers=[("origin", b"%d" % n)], timestamp=EARLY_MS)
        for n in range(2)
    ]
    return records.build_batch(0, batch_records)


async def letters_topic(run: CaseRun, partitions: int = 1) -> CaseTopic:
    """Return a topic that groups may write dead letters to."""
    return await run.topic(partitions, configs={PERMISSION: "true"}, name=f"{PREFIX}{run.name('letters')}")


async def member_with_letters(
    run: CaseRun, topic: CaseTopic, letters: CaseTopic, **settings: str
) -> ShareSessionMember:
    """Return a member of a new group that writes dead letters to this topic."""
    settings |= {LETTERS_TOPIC: letters.name}
    return await share_member(run, await share_group(run, topic, settings=settings), topic)


class DeadLetterGroup(NamedTuple):
    """A topic with two records, the topic of its dead letters, and a member that holds both records."""

    topic: CaseTopic
    letters: CaseTopic
    member: ShareSessionMember


async def dead_letter_group(run: CaseRun, **settings: str) -> DeadLetterGroup:
    """Create a group whose member holds two records. `settings`: names with `_` instead of a dot."""
    letters = await letters_topic(run)
    topic = await run.topic()
    await run.append(topic, two_records())
    group_settings = {name.replace("_", "."): value for name, value in settings.items()}
    member = await member_with_letters(run, topic, letters, **group_settings)
    equal("acquired records", await member.acquire(topic), [(0, 1, 1)])
    return DeadLetterGroup(topic, letters, member)


async def letters_in(run: CaseRun, topic: CaseTopic, count: int, partition: int = 0) -> list[records.Record]:
    """Return the records of a partition of the topic of dead letters once there are that many."""

    async def read_all() -> list[records.Record]:
        data = memoryview((await read(run, topic, partition=partition)).records or b"")
        batches = [b for b in records.iter_batches(data) if not b.is_control]
        decoded = [r for b in batches for r in records.decode_records(data[b.position : b.end])]
        return decoded if len(decoded) >= count else []

    letters: list[records.Record] = await run.until(read_all, f"{count} dead letters")
    return letters


@case("dead-letters.rejected", KIP, needs=NEEDS)
async def rejected(run: CaseRun) -> None:
    """A rejected record is written to the topic of dead letters with the headers of its origin, without key and
    value.
    """
    topic, letters, member = await dead_letter_group(run)
    await member.acknowledge((topic, 0, 0, 1, [ACCEPT, REJECT]))
    (letter,) = await letters_in(run, letters, 1)
    expected = {
        "__dlq.errors.topic": topic.name.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": member.group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": REJECTED,
    }
    equal("headers", dict(letter.headers), expected)
    equal("key and value", (letter.key, letter.value), (None, None))


@case("dead-letters.copied", KIP, needs=NEEDS)
async def copied(run: CaseRun) -> None:
    """With errors.deadletterqueue.copy.record.enable key and value are copied."""
    topic, letters, member = await dead_letter_group(run, errors_deadletterqueue_copy_record_enable="true")
    await member.acknowledge((topic, 0, 0, 1, [ACCEPT, REJECT]))
    (letter,) = await letters_in(run, letters, 1)
    equal("key and value", (letter.key, letter.value), (b"key 1", b"value 1"))


@case("dead-letters.exhausted", KIP, needs=(*NEEDS, "delivery-limit"))
async def exhausted(run: CaseRun) -> None:
    """A record that reaches the delivery limit is written to the topic of dead letters."""
    topic, letters, member = await dead_letter_group(run, share_delivery_count_limit="2")
    await member.acknowledge((topic, 0, 0, 1, RELEASE))
    equal("second delivery", await member.acquire(topic), [(0, 1, 2)])
    await member.acknowledge((topic, 0, 0, 1, RELEASE))
    written = await letters_in(run, letters, 2)
    headers = [dict(each.headers) for each in written]
    equal("offsets", sorted(each["__dlq.errors.offset"] or b"" for each in headers), [b"0", b"1"])
    equal("messages", {each["__dlq.errors.message"] for each in headers}, {EXHAUSTED})
    equal("delivery counts", {each["__dlq.errors.delivery.count"] for each in headers}, {b"2"})


@case_for_each({"accepted": (ACCEPT,), "gap": (GAP,)}, "dead-letters.not-{name}", KIP, needs=NEEDS)
async def not_dead(run: CaseRun, kind: int) -> None:
    """A record acknowledged with type {0} is no dead letter."""
    topic, letters, member = await dead_letter_group(run)
    await member.acknowledge((topic, 0, 0, 1, [kind, REJECT]))
    (letter,) = await letters_in(run, letters, 1)
    equal("offset of the only dead letter", dict(letter.headers)["__dlq.errors.offset"], b"1")


@case("dead-letters.not-again", KIP, needs=NEEDS)
async def not_again(run: CaseRun) -> None:
    """A record that became a dead letter is not delivered again, and others are."""
    topic, letters, member = await dead_letter_group(run)
    await member.acknowledge((topic, 0, 0, 1, REJECT))
    await letters_in(run, letters, 2)
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(2, 2, 1)])


@case("dead-letters.off-by-default", KIP, needs=NEEDS)
async def off_by_default(run: CaseRun) -> None:
    """Without a topic of dead letters a rejected record is dropped."""
    topic = await run.topic(count=2)
    member = await share_member(run, await share_group(run, topic), topic)
    await member.take(topic)
    response = await member.acknowledge((topic, 0, 0, 1, REJECT))
    equal("error of the response", response.error_code, ErrorCode.NONE)
    later: Any = await member.fetch(topic, wait_ms=300)
    equal("acquired next", acquired(later, topic), [])


@case("dead-letters.without-permission", "KIP-1191 (errors.deadletterqueue.group.enable)", needs=NEEDS)
async def without_permission(run: CaseRun) -> None:
    """A topic that does not allow dead letters gets none, and the record is not delivered again."""
    letters = await run.topic(name=f"{PREFIX}{run.name('letters')}")
    topic = await run.topic(count=1)
    member = await member_with_letters(run, topic, letters)
    await member.take(topic)
    await member.acknowledge((topic, 0, 0, 0, REJECT))
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(1, 1, 1)])
    equal("end of the topic of dead letters", await run.end_offset(letters), 0)


@case("dead-letters.internal-name", "KIP-1191; GroupConfig", needs=NEEDS)
async def internal_name(run: CaseRun) -> None:
    """A topic name that begins with __ is refused with INVALID_CONFIG."""
    error = await run.cluster.alter_group(await run.connection(), run.group(), {LETTERS_TOPIC: "__letters"})
    equal("error", error.split(" ")[0], "INVALID_CONFIG")


@case("dead-letters.expired", KIP, needs=(*NEEDS, "delivery-limit", "short-locks"))
async def expired(run: CaseRun) -> None:
    """A record whose lock expires at its last delivery is written to the topic of dead letters."""
    limits = {"share_delivery_count_limit": "2", "share_record_lock_duration_ms": "1000"}
    topic, letters, member = await dead_letter_group(run, **limits)
    equal("second delivery", await member.acquire(topic), [(0, 1, 2)])
    headers = [dict(each.headers) for each in await letters_in(run, letters, 2)]
    equal("messages", {each["__dlq.errors.message"] for each in headers}, {EXHAUSTED})
    equal("delivery counts", {each["__dlq.errors.delivery.count"] for each in headers}, {b"2"})


@case("dead-letters.later-delivery", KIP, needs=NEEDS)
async def later_delivery(run: CaseRun) -> None:
    """The delivery count of a dead letter is that of the delivery that was rejected."""
    topic, letters, member = await dead_letter_group(run)
    await member.acknowledge((topic, 0, 0, 1, [ACCEPT, RELEASE]))
    equal("second delivery", await member.acquire(topic), [(1, 1, 2)])
    await member.acknowledge((topic, 0, 1, 1, REJECT))
    (letter,) = await letters_in(run, letters, 1)
    equal("delivery count", dict(letter.headers)["__dlq.errors.delivery.count"], b"2")
    equal("message", dict(letter.headers)["__dlq.errors.message"], REJECTED)


@case("dead-letters.released", KIP, needs=NEEDS)
async def released(run: CaseRun) -> None:
    """A record that is released before its last delivery is no dead letter."""
    topic, letters, member = await dead_letter_group(run)
    await member.acknowledge((topic, 0, 0, 1, [RELEASE, REJECT]))
    (letter,) = await letters_in(run, letters, 1)
    equal("offset of the only dead letter", dict(letter.headers)["__dlq.errors.offset"], b"1")
    equal("delivered again", await member.acquire(topic), [(0, 0, 2)])


@case("dead-letters.source-headers", KIP, needs=NEEDS)
async def source_headers(run: CaseRun) -> None:
    """The headers and the timestamp of the record are not copied, also if key and value are."""
    topic, letters, member = await dead_letter_group(run, errors_deadletterqueue_copy_record_enable="true")
    await member.acknowledge((topic, 0, 0, 1, [ACCEPT, REJECT]))
    (letter,) = await letters_in(run, letters, 1)
    equal("other headers", [name for name, _ in letter.headers if not name.startswith("__dlq.errors.")], [])
    true("timestamp", letter.timestamp > EARLY_MS, "that of the write", letter.timestamp)


@case("dead-letters.partition", "Kafka 4.4.0 (sharegroups/README.md rule 87)", needs=NEEDS)
async def partition_of_letters(run: CaseRun) -> None:
    """A dead letter is written to the partition whose index is that of the record, modulo the number of partitions."""
    letters = await letters_topic(run, 2)
    topic = await run.topic(4, count=1)
    member = await member_with_letters(run, topic, letters)
    for partition in topic.partitions:
        equal("acquired records", await member.acquire(topic, partition), [(0, 0, 1)])
        await member.acknowledge((topic, partition, 0, 0, REJECT))
    for partition, sources in enumerate(([b"0", b"2"], [b"1", b"3"])):
        headers = [dict(each.headers) for each in await letters_in(run, letters, 2, partition)]
        equal("source partitions", sorted(each["__dlq.errors.partition"] or b"" for each in headers), sources)


@case("dead-letters.groups", KIP, needs=NEEDS)
async def two_groups(run: CaseRun) -> None:
    """Each group writes its own dead letter of a record that both reject."""
    topic, letters, member = await dead_letter_group(run)
    other = await member_with_letters(run, topic, letters)
    await other.take(topic)
    for each in (member, other):
        await each.acknowledge((topic, 0, 0, 1, [REJECT, ACCEPT]))
    headers = [dict(each.headers) for each in await letters_in(run, letters, 2)]
    actual = sorted((each["__dlq.errors.group"], each["__dlq.errors.offset"]) for each in headers)
    equal("groups and offsets", actual, sorted((each.group.encode(), b"0") for each in (member, other)))
