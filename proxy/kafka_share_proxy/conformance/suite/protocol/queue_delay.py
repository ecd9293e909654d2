"""Cases of redelivery delay, which only this proxy offers (sharegroups/README.md rules 80 to 84)."""

from __future__ import annotations

import time
from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    FINAL_EPOCH,
    REJECT,
    RELEASE,
    ShareSessionMember,
    Spans,
    acquired,
    described,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.redelivery_delay import APPLIED, DELAY_MS_MAX, tags_of

NEEDS = ("share", "redelivery-delay")
RULE = "sharegroups/README.md rule {}"
DELAY, DELAY_MAX, MULTIPLIER = (f"share.redelivery.delay.{name}" for name in ("ms", "max.ms", "multiplier"))
LONG = {DELAY: "60000"}
"""Longer than a member of a case fetches for records."""
SHORT = {DELAY: "800"}
LEAST = 0.9
"""A delay deviates by 10 %."""
WAITING_MS = 300
"""Wait of a fetch that must acquire nothing."""


async def delayed_member(
    run: CaseRun, count: int = 1, settings: dict[str, str] | None = None
) -> tuple[CaseTopic, ShareSessionMember]:
    """Return a topic with records, and a member that holds them all."""
    topic = await run.topic(count=count)
    member = await share_member(run, await share_group(run, topic, settings=settings), topic)
    equal("acquired records", await member.acquire(topic), [(0, count - 1, 1)])
    return topic, member


async def release(member: ShareSessionMember, topic: CaseTopic, last: int = 0) -> Any:
    """Release the records from offset 0 on. Return the partition of the response."""
    result = entry(await member.acknowledge((topic, 0, 0, last, RELEASE)), topic)
    equal("error of the release", result.error_code, ErrorCode.NONE)
    return result


async def release_with_delay(member: ShareSessionMember, topic: CaseTopic, *delays_ms: int) -> Any:
    """Release a record for each delay, from offset 0 on. Return the partition of the response."""
    batches = [
        {"first_offset": n, "last_offset": n, "acknowledge_types": [RELEASE], "unknown_tags": tags_of(delay_ms)}
        for n, delay_ms in enumerate(delays_ms)
    ]
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    topics = [{"topic_id": topic.topic_id, "partitions": [partition]}]
    return entry(await member.acknowledge(topics=topics), topic)


async def waits(member: ShareSessionMember, topic: CaseTopic, wait_ms: int = WAITING_MS) -> None:
    """Check that the member acquires nothing now."""
    equal("acquired during the delay", acquired(await member.fetch(topic, wait_ms=wait_ms), topic), [])


async def returns_after(
    member: ShareSessionMember, topic: CaseTopic, started_at: float, least_s: float, expected: Spans
) -> None:
    """Check that the records are acquired again, and no earlier."""
    equal("acquired after the delay", await member.acquire(topic), list(expected))
    actual = time.monotonic() - started_at
    true("duration of the delay", actual >= LEAST * least_s, f"at least {LEAST * least_s:.2f} s", round(actual, 3))


@case("queues.delay.released", RULE.format(80), needs=NEEDS)
async def released(run: CaseRun) -> None:
    """A released record is available again after the delay, not before, with a higher delivery count."""
    topic, member = await delayed_member(run, 2, SHORT)
    started_at = time.monotonic()
    await release(member, topic, 1)
    await returns_after(member, topic, started_at, 0.8, [(0, 1, 2)])


@case("queues.delay.expired", RULE.format(80), needs=(*NEEDS, "short-locks"))
async def expired(run: CaseRun) -> None:
    """A record whose lock expires is available again after the delay, not before."""
    topic = await run.topic(count=1)
    settings = {DELAY: "1500", "share.record.lock.duration.ms": "1000"}
    member = await share_member(run, await share_group(run, topic, settings=settings), topic)
    started_at = time.monotonic()
    await member.take(topic)
    await returns_after(member, topic, started_at, 1.0 + 1.5, [(0, 0, 2)])


@case("queues.delay.grows", RULE.format(80), needs=NEEDS)
async def grows(run: CaseRun) -> None:
    """The delay is multiplied for each further delivery."""
    topic, member = await delayed_member(run, 1, {DELAY: "200", MULTIPLIER: "6"})
    await release(member, topic)
    equal("second delivery", await member.acquire(topic), [(0, 0, 2)])
    started_at = time.monotonic()
    await release(member, topic)
    await returns_after(member, topic, started_at, 1.2, [(0, 0, 3)])


@case("queues.delay.maximum", RULE.format(80), needs=NEEDS)
async def maximum(run: CaseRun) -> None:
    """The delay does not grow beyond share.redelivery.delay.max.ms."""
    topic, member = await delayed_member(run, 1, {DELAY: "600", MULTIPLIER: "100", DELAY_MAX: "700"})
    await release(member, topic)
    equal("second delivery", await member.acquire(topic), [(0, 0, 2)])
    started_at = time.monotonic()
    await release(member, topic)
    await returns_after(member, topic, started_at, 0.7, [(0, 0, 3)])


@case("queues.delay.ended-session", RULE.format(80), needs=NEEDS)
async def ended_session(run: CaseRun) -> None:
    """Records of an ended session are available without delay."""
    topic, member = await delayed_member(run, 2, LONG)
    await member.acknowledge(epoch=FINAL_EPOCH)
    other = await share_member(run, member.group, topic)
    equal("offsets acquired by another member", (await other.acquire(topic))[0][:2], (0, 1))


@case("queues.delay.others", RULE.format(81), needs=NEEDS)
async def other_records(run: CaseRun) -> None:
    """Other records are delivered while released ones wait."""
    topic, member = await delayed_member(run, 2, LONG)
    await release(member, topic, 1)
    await run.produce(topic, 3)
    equal("acquired during the delay", await member.acquire(topic), [(2, 4, 1)])


@case("queues.delay.start-offset", RULE.format(81), needs=(*NEEDS, "DescribeShareGroupOffsets:0"))
async def start_offset(run: CaseRun) -> None:
    """A waiting record holds the start offset."""
    topic, member = await delayed_member(run, 3, LONG)
    await member.acknowledge((topic, 0, 0, 2, [ACCEPT, RELEASE, ACCEPT]))
    equal("start offset", (await described(run, member.group, topic)).start_offset, 1)


@case("queues.delay.window", RULE.format(81), needs=(*NEEDS, "lock-limit"))
async def window(run: CaseRun) -> None:
    """Waiting records count towards share.partition.max.record.locks."""
    topic, member = await delayed_member(run, 100, LONG | {"share.partition.max.record.locks": "100"})
    await release(member, topic, 99)
    await run.produce(topic, 10)
    await waits(member, topic)


@case_for_each(
    {"accept": (ACCEPT,), "release": (RELEASE,), "reject": (REJECT,)},
    "queues.delay.not-held-{name}",
    RULE.format(81),
    needs=NEEDS,
)
async def not_held(run: CaseRun, kind: int) -> None:
    """A waiting record cannot be acknowledged with type {0}: INVALID_RECORD_STATE."""
    topic, member = await delayed_member(run, 1, LONG)
    await release(member, topic)
    equal("error", await member.acknowledge_code((topic, 0, 0, 0, kind)), ErrorCode.INVALID_RECORD_STATE)


@case("queues.delay.last-delivery", RULE.format(81), needs=(*NEEDS, "delivery-limit", "DescribeShareGroupOffsets:0"))
async def last_delivery(run: CaseRun) -> None:
    """A record that is released at its last delivery is archived immediately."""
    topic, member = await delayed_member(run, 1, {DELAY: "100", "share.delivery.count.limit": "2", MULTIPLIER: "100"})
    await release(member, topic)
    equal("second delivery", await member.acquire(topic), [(0, 0, 2)])
    await release(member, topic)
    equal("start offset", (await described(run, member.group, topic)).start_offset, 1)


@case("queues.delay.named", RULE.format(83), needs=NEEDS)
async def delay_of_release(run: CaseRun) -> None:
    """A member may name the delay of a release in a group without delay, which the response confirms by an empty
    tag.
    """
    topic, member = await delayed_member(run)
    started_at = time.monotonic()
    result = await release_with_delay(member, topic, 1500)
    equal("error", result.error_code, ErrorCode.NONE)
    equal("tags of the partition", tuple(result.unknown_tags), APPLIED)
    await returns_after(member, topic, started_at, 1.5, [(0, 0, 2)])


@case("queues.delay.named-zero", RULE.format(83), needs=NEEDS)
async def named_zero(run: CaseRun) -> None:
    """A named delay of 0 replaces the delay of the group."""
    topic, member = await delayed_member(run, 1, LONG)
    await release_with_delay(member, topic, 0)
    equal("acquired records", await member.acquire(topic), [(0, 0, 2)])


@case("queues.delay.named-each", RULE.format(83), needs=NEEDS)
async def named_each(run: CaseRun) -> None:
    """Each batch of acknowledgements has its own delay."""
    topic, member = await delayed_member(run, 2)
    await release_with_delay(member, topic, DELAY_MS_MAX, 0)
    equal("acquired records", await member.acquire(topic), [(1, 1, 2)])
    await waits(member, topic)


@case_for_each(
    {"negative": (-1,), "too-long": (DELAY_MS_MAX + 1,)}, "queues.delay.named-{name}", RULE.format(83), needs=NEEDS
)
async def named_refused(run: CaseRun, delay_ms: int) -> None:
    """A named delay of {0} ms is refused with INVALID_REQUEST, and the record stays held."""
    topic, member = await delayed_member(run)
    result = await release_with_delay(member, topic, delay_ms)
    equal("error", result.error_code, ErrorCode.INVALID_REQUEST)
    equal("error of a later acknowledgement", await member.acknowledge_code((topic, 0, 0, 0, ACCEPT)), ErrorCode.NONE)


@case("queues.delay.not-named", RULE.format(83), needs=NEEDS)
async def not_named(run: CaseRun) -> None:
    """Without a named delay the response has no tag of it."""
    topic, member = await delayed_member(run, 1, LONG)
    equal("tags of the partition", tuple((await release(member, topic)).unknown_tags), ())


@case("queues.delay.changed", RULE.format(84), needs=NEEDS)
async def changed(run: CaseRun) -> None:
    """A changed delay does not hold for records that wait already."""
    topic, member = await delayed_member(run, 1, LONG)
    await release(member, topic)
    await run.cluster.configure_group(await run.connection(), member.group, {DELAY: "1"})
    await waits(member, topic, 1000)
    await run.produce(topic, 1)
    equal("acquired next", await member.acquire(topic), [(1, 1, 1)])


@case("queues.delay.removed", RULE.format(84), needs=NEEDS)
async def removed(run: CaseRun) -> None:
    """Without a delay waiting records are available immediately."""
    topic, member = await delayed_member(run, 1, LONG)
    await release(member, topic)
    await waits(member, topic)
    await run.cluster.configure_group(await run.connection(), member.group, {DELAY: "0"})
    equal("acquired records", await member.acquire(topic), [(0, 0, 2)])


@case("queues.delay.off-by-default", RULE.format(73), needs=NEEDS)
async def off_by_default(run: CaseRun) -> None:
    """Without a delay a released record is available immediately."""
    topic, member = await delayed_member(run)
    await release(member, topic)
    equal("acquired records", acquired(await member.fetch(topic), topic), [(0, 0, 2)])


@case_for_each(
    {
        "too-long": (DELAY, str(DELAY_MS_MAX + 1)),
        "negative": (DELAY, "-1"),
        "maximum-too-long": (DELAY_MAX, str(DELAY_MS_MAX + 1)),
        "multiplier-below-one": (MULTIPLIER, "0.5"),
        "multiplier-no-number": (MULTIPLIER, "nan"),
    },
    "queues.delay.refused-{name}",
    RULE.format(73),
    needs=NEEDS,
)
async def refused(run: CaseRun, name: str, value: str) -> None:
    """{0}={1} is refused with INVALID_CONFIG."""
    error = await run.cluster.alter_group(await run.connection(), run.group(), {name: value})
    equal("error", error.split(" ")[0], "INVALID_CONFIG")
