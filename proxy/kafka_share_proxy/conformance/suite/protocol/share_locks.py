"""Cases of locks of share groups: their end, and renewals."""

from __future__ import annotations

import time
from typing import Any

import trio

from kafka_share_proxy.conformance.suite.capabilities import SHORT_LOCK_MS
from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.protocol.share_acknowledging import APIS, LOCK_S, RENEWAL, SECOND, holding
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    SHARE,
    ShareSessionMember,
    acquired,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode

# Locks that end


async def short_locks(run: CaseRun, count: int = 10) -> tuple[CaseTopic, ShareSessionMember]:
    """A topic with records, and a member of a group whose locks take SHORT_LOCK_MS."""
    topic = await run.topic(count=count)
    settings = {"share.record.lock.duration.ms": str(SHORT_LOCK_MS)}
    return topic, await share_member(run, await share_group(run, topic, settings=settings), topic)


@case("share-groups.locks.expire", "SharePartition.AcquisitionLockTimerTask", needs=(*SHARE, "short-locks"))
async def locks_expire(run: CaseRun) -> None:
    """A lock ends after its duration: another member acquires the records with count 2, and not before."""
    topic, member = await short_locks(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0, max_records=0)
    started_at = time.monotonic()
    response = await member.take(topic)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, SHORT_LOCK_MS)
    equal("acquired by another member", await other.acquire(topic), [(0, 9, 2)])
    true("duration of the lock", time.monotonic() - started_at >= 0.9 * LOCK_S, f"at least {SHORT_LOCK_MS} ms")


@case("share-groups.locks.late-acknowledgement", "SharePartition.acknowledge", needs=(*SHARE, "short-locks"))
async def late_acknowledgement(run: CaseRun) -> None:
    """An acknowledgement after the end of the lock gets INVALID_RECORD_STATE."""
    topic, member = await short_locks(run)
    other = await share_member(run, member.group, topic)
    await member.take(topic)
    await other.take(topic)
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)
    equal("error of the response", response.error_code, ErrorCode.NONE)


@case("share-groups.locks.session-survives", "SharePartition.AcquisitionLockTimerTask", needs=(*SHARE, "short-locks"))
async def session_survives(run: CaseRun) -> None:
    """The end of a lock does not end the session."""
    topic, member = await short_locks(run)
    await member.take(topic)
    equal("acquired again by the same member", await member.acquire(topic), [(0, 9, 2)])


@case(
    "share-groups.locks.expiry-counts-as-delivery",
    "SharePartition (share.delivery.count.limit)",
    needs=(*SHARE, "short-locks", "delivery-limit"),
)
async def expiry_counts(run: CaseRun) -> None:
    """An expired lock uses up a delivery: with a limit of 2 the records are gone after two of them."""
    topic = await run.topic(count=10)
    settings = {"share.record.lock.duration.ms": str(SHORT_LOCK_MS), "share.delivery.count.limit": "2"}
    member = await share_member(run, await share_group(run, topic, settings=settings), topic)
    equal("first delivery", await member.acquire(topic), [(0, 9, 1)])
    equal("second delivery", await member.acquire(topic), [(0, 9, 2)])
    await trio.sleep(1.5 * LOCK_S)
    await run.produce(topic, 1)
    equal("after the limit", await member.acquire(topic), [(10, 10, 1)])


@case(
    "share-groups.locks.part-of-a-batch-expires",
    "SharePartition (timers of a split batch)",
    needs=(*SHARE, "short-locks"),
)
async def part_expires(run: CaseRun) -> None:
    """The rest of a partly acknowledged batch keeps the deadline of its acquisition."""
    topic, member = await short_locks(run)
    await member.take(topic)
    await member.acknowledge((topic, 0, 2, 5, ACCEPT))
    actual: set[int] = set()

    def complete(response: Any) -> bool:
        actual.update(
            n for first, last, count in acquired(response, topic) for n in range(first, last + 1) if count > 1
        )
        return len(actual) >= 6

    await member.fetch_until(complete, topic)
    equal("offsets acquired again", sorted(actual), [0, 1, 6, 7, 8, 9])


# Renewals


@case_for_each(APIS, "share-groups.renew.restarts-the-lock-by-{name}", RENEWAL, needs=(*SECOND, "short-locks"))
async def renew_restarts(run: CaseRun, api: str) -> None:
    """RENEW by {0} restarts the lock: renewed three times within its duration, the records stay held."""
    topic, member = await short_locks(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0, max_records=0)
    await member.take(topic)
    for number in range(3):
        await trio.sleep(0.6 * LOCK_S)
        acks = [(topic, 0, 0, 9, RENEW)]
        response = await (
            member.acknowledge(*acks, renew=True) if api == "ShareAcknowledge" else member.fetch(acks=acks, renew=True)
        )
        partition = entry(response, topic)
        code = partition.error_code if api == "ShareAcknowledge" else partition.acknowledge_error_code
        equal(f"error of renewal {number}", code, ErrorCode.NONE)
        equal("acquired by another member", acquired(await other.fetch(topic, wait_ms=0), topic), [])
    equal("acquired after the last lock", await other.acquire(topic), [(0, 9, 2)])


@case("share-groups.renew.keeps-the-count", RENEWAL, needs=SECOND)
async def renew_keeps_the_count(run: CaseRun) -> None:
    """A renewal does not change the delivery count."""
    topic, member = await holding(run)
    for _ in range(3):
        await member.acknowledge((topic, 0, 0, 9, RENEW), renew=True)
    await member.acknowledge((topic, 0, 0, 9, RELEASE))
    equal("acquired again", await member.acquire(topic), [(0, 9, 2)])


@case_for_each(
    {name: ({name: 1},) for name in ("max_wait_ms", "min_bytes", "max_bytes", "max_records")},
    "share-groups.renew.fetch-must-not-{name}",
    "KIP-1222; KafkaApis.handleShareFetchRequest",
    needs=SECOND,
)
async def renew_must_not_fetch(run: CaseRun, amount: dict[str, Any]) -> None:
    """A renewing ShareFetch with {0} is refused with INVALID_REQUEST, and uses no epoch up."""
    topic, member = await holding(run)
    response = await member.fetch(acks=[(topic, 0, 0, 9, RENEW)], renew=True, **amount)
    equal("error of the response", response.error_code, ErrorCode.INVALID_REQUEST)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 0)
    response = await member.fetch(acks=[(topic, 0, 0, 9, RENEW)], renew=True)
    equal("error at the same epoch", response.error_code, ErrorCode.NONE)
    equal("error of the renewal", entry(response, topic).acknowledge_error_code, ErrorCode.NONE)


@case("share-groups.renew.batch-size-not-checked", "KIP-1222; KafkaApis.handleShareFetchRequest", needs=SECOND)
async def renew_batch_size(run: CaseRun) -> None:
    """A renewing ShareFetch may have a BatchSize."""
    topic, member = await holding(run)
    response = await member.fetch(acks=[(topic, 0, 0, 9, RENEW)], renew=True, batch_size=500)
    equal("error of the response", response.error_code, ErrorCode.NONE)


@case("share-groups.renew.fetches-nothing", RENEWAL, needs=SECOND)
async def renew_fetches_nothing(run: CaseRun) -> None:
    """A renewing ShareFetch returns no records, even if there are new ones, and does not wait."""
    topic, member = await holding(run)
    await run.produce(topic, 5)
    response = await member.fetch(topic, acks=[(topic, 0, 0, 4, RENEW)], renew=True)
    equal("acquired records", acquired(response, topic), [])
    equal("bytes of records", len(entry(response, topic).records or b""), 0)
    equal("acquired by the next fetch", await member.acquire(topic), [(10, 14, 1)])


@case_for_each(
    {f"{name}-v{version}": (api, version) for name, (api,) in APIS.items() for version in (1, 2)},
    "share-groups.renew.without-flag-{name}",
    "KIP-1222; KafkaApis.validateAcknowledgementBatches",
    needs=SECOND,
)
async def renew_without_flag(run: CaseRun, api: str, version: int) -> None:
    """Type 4 without IsRenewAck in {0} v{1} gets INVALID_REQUEST for the partition, and changes nothing."""
    topic, member = await holding(run)
    acks = [(topic, 0, 0, 9, RENEW)]
    if api == "ShareAcknowledge":
        code = entry(await member.acknowledge(*acks, version=version), topic).error_code
    else:
        code = entry(await member.fetch(acks=acks, version=version, wait_ms=0), topic).acknowledge_error_code
    equal("error of the partition", code, ErrorCode.INVALID_REQUEST)
    equal("error of the right acknowledgement", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.NONE)


@case("share-groups.renew.flag-without-renewal", RENEWAL, needs=SECOND)
async def flag_without_renewal(run: CaseRun) -> None:
    """IsRenewAck without a type 4 is accepted."""
    topic, member = await holding(run)
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT), renew=True)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.NONE)


@case("share-groups.renew.mixed-types", RENEWAL, needs=SECOND)
async def renew_mixed(run: CaseRun) -> None:
    """RENEW may be mixed with other types in one batch: each record takes its own."""
    topic, member = await holding(run)
    types = [ACCEPT, RENEW, RELEASE, RENEW, REJECT, ACCEPT, RELEASE, RENEW, ACCEPT, ACCEPT]
    response = await member.acknowledge((topic, 0, 0, 9, types), renew=True)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.NONE)
    equal("acquired again", await member.acquire(topic), [(2, 2, 2), (6, 6, 2)])
    acknowledgement = await member.acknowledge(*((topic, 0, n, n, ACCEPT) for n in (1, 3, 7)))
    equal("error for the renewed records", entry(acknowledgement, topic).error_code, ErrorCode.NONE)


@case("share-groups.renew.not-held", RENEWAL, needs=SECOND)
async def renew_not_held(run: CaseRun) -> None:
    """Renewing records of another member gets INVALID_RECORD_STATE."""
    topic, member = await holding(run)
    other = await share_member(run, member.group, topic)
    await other.fetch(topic, wait_ms=0)
    response = await other.acknowledge((topic, 0, 0, 9, RENEW), renew=True)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)


@case("share-groups.renew.accepted", RENEWAL, needs=SECOND)
async def renew_accepted(run: CaseRun) -> None:
    """Renewing a record that was accepted gets INVALID_RECORD_STATE."""
    topic, member = await holding(run)
    await member.acknowledge((topic, 0, 5, 9, ACCEPT))
    response = await member.acknowledge((topic, 0, 5, 9, RENEW), renew=True)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)


@case("share-groups.renew.late", RENEWAL, needs=(*SECOND, "short-locks"))
async def renew_late(run: CaseRun) -> None:
    """Renewing after the end of the lock gets INVALID_RECORD_STATE."""
    topic, member = await short_locks(run)
    other = await share_member(run, member.group, topic)
    await member.take(topic)
    await other.take(topic)
    response = await member.acknowledge((topic, 0, 0, 9, RENEW), renew=True)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)


@case("share-groups.renew.partitions-are-independent", RENEWAL, needs=SECOND)
async def renew_partitions(run: CaseRun) -> None:
    """A renewal in one partition succeeds although another partition of the request fails."""
    topic = await run.topic(2, count=3)
    member = await share_member(run, await share_group(run, topic), topic)
    await member.take((topic, 0))
    await member.take((topic, 1))
    response = await member.acknowledge((topic, 0, 0, 2, RENEW), (topic, 1, 0, 2, 9), renew=True)
    equal("error of partition 0", entry(response, topic, 0).error_code, ErrorCode.NONE)
    equal("error of partition 1", entry(response, topic, 1).error_code, ErrorCode.INVALID_REQUEST)


@case(
    "share-groups.renew.changed-duration",
    "KIP-1222; ShareAcknowledgeResponse.json (AcquisitionLockTimeoutMs)",
    needs=(*SECOND, "group-settings"),
)
async def renew_changed_duration(run: CaseRun) -> None:
    """A renewal uses the present duration of locks and returns it."""
    topic, member = await holding(run)
    settings = {"share.record.lock.duration.ms": "40000"}
    await run.cluster.configure_group(await run.connection(), member.group, settings)
    response = await member.acknowledge((topic, 0, 0, 9, RENEW), renew=True)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 40_000)


@case("share-groups.renew.switched-off", "KIP-1240; SharePartition", needs=(*SECOND, "renew-switch"))
async def renew_switched_off(run: CaseRun) -> None:
    """With share.renew.acknowledge.enable=false a renewal gets INVALID_RECORD_STATE, and the record stays held."""
    topic = await run.topic(count=10)
    group = await share_group(run, topic, settings={"share.renew.acknowledge.enable": "false"})
    member = await share_member(run, group, topic)
    await member.take(topic)
    response = await member.acknowledge((topic, 0, 0, 9, RENEW), renew=True)
    equal("error of the partition", entry(response, topic).error_code, ErrorCode.INVALID_RECORD_STATE)
    equal("error of accepting", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.NONE)
