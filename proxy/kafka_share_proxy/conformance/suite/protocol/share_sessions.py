"""Cases of share sessions: epochs, checks of a request, partitions of a session, its end."""

from __future__ import annotations

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    LAST_EPOCH,
    SHARE,
    ShareSessionMember,
    acquired,
    entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode

SESSION = "KIP-932; SharePartitionManager.newContext"
CHECKS = "KIP-932; KafkaApis.handleShareFetchRequest"
LOCK_MS = 30_000
UNKNOWN_ID = b"\x07" * 16
MEMBER_ID_LENGTH_MAX = 36
NULLS = {"4.2": "null ids are not checked: the request fails with -1"}


async def ten_records(run: CaseRun, partitions: int = 1) -> tuple[CaseTopic, ShareSessionMember]:
    """A topic with the records 0-9 in each partition, and a member of a group that begins at 0."""
    topic = await run.topic(partitions, count=10)
    return topic, await share_member(run, await share_group(run, topic), topic)


async def ten_taken(run: CaseRun) -> tuple[CaseTopic, ShareSessionMember]:
    """A topic with the records 0-9, and a member that has acquired them."""
    topic, member = await ten_records(run)
    await member.take(topic)
    return topic, member


@case_for_each(
    {"fetch": ("ShareFetch",), "acknowledge": ("ShareAcknowledge",)},
    "share-groups.sessions.unknown-session-{name}",
    SESSION,
    needs=SHARE,
)
async def unknown_session(run: CaseRun, api: str) -> None:
    """{0} with epoch 1 and no session is refused with SHARE_SESSION_NOT_FOUND."""
    topic, member = await ten_records(run)
    response = await (member.fetch(topic, epoch=1) if api == "ShareFetch" else member.acknowledge(epoch=1))
    equal("error of the response", response.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)
    equal("partitions in the response", list(response.responses), [])
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 0)


@case_for_each(
    {"fetch": ("ShareFetch",), "acknowledge": ("ShareAcknowledge",)},
    "share-groups.sessions.final-epoch-without-session-{name}",
    SESSION,
    needs=SHARE,
)
async def final_epoch_without_session(run: CaseRun, api: str) -> None:
    """{0} with epoch -1 and no session is refused with SHARE_SESSION_NOT_FOUND."""
    _, member = await ten_records(run)
    response = await (member.fetch(epoch=-1) if api == "ShareFetch" else member.acknowledge(epoch=-1))
    equal("error of the response", response.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)


@case_for_each(
    {
        "fetch-ahead": ("ShareFetch", 1),
        "fetch-behind": ("ShareFetch", -1),
        "acknowledge-ahead": ("ShareAcknowledge", 1),
        "acknowledge-behind": ("ShareAcknowledge", -1),
    },
    "share-groups.sessions.wrong-epoch-{name}",
    SESSION,
    needs=SHARE,
)
async def wrong_epoch(run: CaseRun, api: str, difference: int) -> None:
    """{0} with an epoch {1:+d} from the expected one is refused with INVALID_SHARE_SESSION_EPOCH and uses none up."""
    topic, member = await ten_taken(run)
    await member.fetch(wait_ms=0)
    epoch = member.epoch + difference
    response = await (member.fetch(epoch=epoch) if api == "ShareFetch" else member.acknowledge(epoch=epoch))
    equal("error of the response", response.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 0)
    accepted = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error at the expected epoch", accepted.error_code, ErrorCode.NONE)
    equal("error of the acknowledged partition", entry(accepted, topic).error_code, ErrorCode.NONE)


@case("share-groups.sessions.one-sequence", "KIP-932; ShareSessionCache", needs=SHARE)
async def one_sequence(run: CaseRun) -> None:
    """ShareFetch and ShareAcknowledge of one session use one sequence of epochs: 0, 1, 2, 3."""
    topic, member = await ten_records(run)
    codes = [
        (await member.fetch(topic, epoch=0, wait_ms=0)).error_code,
        (await member.acknowledge(epoch=1)).error_code,
        (await member.fetch(epoch=2, wait_ms=0)).error_code,
        (await member.acknowledge(epoch=3)).error_code,
    ]
    equal("errors at epochs 0 to 3", codes, [0, 0, 0, 0])


@case(
    "share-groups.sessions.acknowledge-cannot-open",
    "KIP-932; SharePartitionManager.acknowledgeSessionUpdate",
    needs=SHARE,
)
async def acknowledge_cannot_open(run: CaseRun) -> None:
    """ShareAcknowledge with epoch 0 is refused with INVALID_SHARE_SESSION_EPOCH."""
    topic, member = await ten_records(run)
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT), epoch=0)
    equal("error of the response", response.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 0)


@case("share-groups.sessions.acknowledgements-at-epoch-0", CHECKS, needs=SHARE)
async def acknowledgements_at_epoch_0(run: CaseRun) -> None:
    """A ShareFetch that opens a session and acknowledges is refused with INVALID_REQUEST."""
    topic, member = await ten_records(run)
    response = await member.fetch(topic, epoch=0, acks=[(topic, 0, 0, 9, ACCEPT)])
    equal("error of the response", response.error_code, ErrorCode.INVALID_REQUEST)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 0)


@case("share-groups.sessions.refused-opening-keeps-session", CHECKS, needs=SHARE)
async def refused_opening_keeps_session(run: CaseRun) -> None:
    """A refused ShareFetch with epoch 0 and acknowledgements leaves the existing session as it is."""
    topic, member = await ten_taken(run)
    await member.fetch(topic, epoch=0, acks=[(topic, 0, 0, 9, ACCEPT)])
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error at the expected epoch", response.error_code, ErrorCode.NONE)


@case_for_each(
    {
        "fetch-empty": ("ShareFetch", ""),
        "fetch-null": ("ShareFetch", None),
        "fetch-37": ("ShareFetch", "m" * (MEMBER_ID_LENGTH_MAX + 1)),
        "acknowledge-empty": ("ShareAcknowledge", ""),
        "acknowledge-null": ("ShareAcknowledge", None),
        "acknowledge-37": ("ShareAcknowledge", "m" * (MEMBER_ID_LENGTH_MAX + 1)),
    },
    "share-groups.sessions.member-id-{name}",
    "KIP-932; KafkaApis (member ids have 1 to 36 characters)",
    needs=SHARE,
    differs=dict.fromkeys(("fetch-null", "acknowledge-null"), NULLS),
)
async def bad_member_id(run: CaseRun, api: str, member_id: str | None) -> None:
    """{0} with the member id {1!r} is refused with INVALID_REQUEST."""
    topic, member = await ten_records(run)
    member.member_id = member_id  # type: ignore[assignment]  # null is what the case sends
    response = await (member.fetch(topic, epoch=0) if api == "ShareFetch" else member.acknowledge(epoch=1))
    equal("error of the response", response.error_code, ErrorCode.INVALID_REQUEST)


@case_for_each(
    {"fetch": ("ShareFetch",), "acknowledge": ("ShareAcknowledge",)},
    "share-groups.sessions.null-group-{name}",
    CHECKS,
    needs=SHARE,
    differs={"fetch": NULLS, "acknowledge": NULLS},
)
async def null_group(run: CaseRun, api: str) -> None:
    """{0} without a group id is refused with INVALID_REQUEST."""
    topic, member = await ten_records(run)
    member.group = None  # type: ignore[assignment]  # null is what the case sends
    response = await (member.fetch(topic, epoch=0) if api == "ShareFetch" else member.acknowledge(epoch=1))
    equal("error of the response", response.error_code, ErrorCode.INVALID_REQUEST)


@case("share-groups.sessions.longest-member-id", "KIP-932; KafkaApis (member ids have 1 to 36 characters)", needs=SHARE)
async def longest_member_id(run: CaseRun) -> None:
    """A member id of 36 characters is accepted."""
    topic, member = await ten_records(run)
    member.member_id = "m" * MEMBER_ID_LENGTH_MAX
    equal("acquired records", await member.acquire(topic), [(0, 9, 1)])


@case("share-groups.sessions.of-one-member", SESSION, needs=SHARE)
async def of_one_member(run: CaseRun) -> None:
    """A session belongs to one member id: another one at the same epoch gets SHARE_SESSION_NOT_FOUND."""
    topic, member = await ten_taken(run)
    other = ShareSessionMember(run, member.group, member.connection, run.name("m")[-36:], epoch=member.epoch)
    equal("error of its fetch", (await other.fetch()).error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)
    response = await other.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of its acknowledgement", response.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)


@case("share-groups.sessions.of-one-group", SESSION, needs=SHARE)
async def of_one_group(run: CaseRun) -> None:
    """One member id has a session for each group."""
    topic, member = await ten_taken(run)
    other = ShareSessionMember(
        run, await share_group(run, topic), member.connection, member.member_id, epoch=member.epoch
    )
    equal("error for another group", (await other.fetch()).error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)


@case(
    "share-groups.sessions.membership-not-required", "KIP-932; SharePartitionManager (no check of members)", needs=SHARE
)
async def membership_not_required(run: CaseRun) -> None:
    """A ShareFetch of a member id that never joined the group acquires records."""
    topic, member = await ten_records(run)
    equal("acquired records", await member.acquire(topic), [(0, 9, 1)])


@case("share-groups.sessions.lock-duration", "ShareFetchResponse.json; share.record.lock.duration.ms", needs=SHARE)
async def lock_duration(run: CaseRun) -> None:
    """An accepted ShareFetch returns the duration of locks in AcquisitionLockTimeoutMs, by default 30000."""
    topic, member = await ten_records(run)
    response = await member.fetch(topic, wait_ms=0)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, LOCK_MS)
    equal("ErrorMessage", response.error_message, None)
    equal("ThrottleTimeMs", response.throttle_time_ms, 0)


@case(
    "share-groups.sessions.lock-duration-of-acknowledge",
    "KIP-1222; ShareAcknowledgeResponse.json",
    needs=(*SHARE, "ShareAcknowledge:2"),
)
async def lock_duration_of_acknowledge(run: CaseRun) -> None:
    """ShareAcknowledge v2 returns the duration of locks."""
    topic, member = await ten_taken(run)
    response = await member.acknowledge((topic, 0, 0, 9, ACCEPT), version=2)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, LOCK_MS)


@case(
    "share-groups.sessions.lock-duration-of-group",
    "share.record.lock.duration.ms of the group",
    needs=(*SHARE, "group-settings"),
)
async def lock_duration_of_group(run: CaseRun) -> None:
    """The group's own lock duration is returned once it is set."""
    topic = await run.topic(count=10)
    group = await share_group(run, topic, settings={"share.record.lock.duration.ms": "25000"})
    member = await share_member(run, group, topic)
    response = await member.fetch(topic, wait_ms=0)
    equal("AcquisitionLockTimeoutMs", response.acquisition_lock_timeout_ms, 25_000)


@case("share-groups.sessions.reopened", SESSION, needs=SHARE)
async def reopened(run: CaseRun) -> None:
    """Epoch 0 with a session replaces it: the next epoch is 1."""
    topic, member = await ten_taken(run)
    equal("error of the second opening", (await member.fetch(topic, epoch=0, wait_ms=0)).error_code, ErrorCode.NONE)
    equal("error at epoch 2", (await member.fetch(epoch=2)).error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    equal("error at epoch 1", (await member.fetch(epoch=1, wait_ms=0)).error_code, ErrorCode.NONE)


@case(
    "share-groups.sessions.reopened-keeps-locks",
    "KIP-932; SharePartitionManager.newContext (epoch 0 releases nothing)",
    needs=SHARE,
)
async def reopened_keeps_locks(run: CaseRun) -> None:
    """A session that is opened again by epoch 0 keeps the locks: the held records are not delivered again."""
    topic, member = await ten_taken(run)
    response = await member.fetch(topic, epoch=0, wait_ms=200)
    equal("acquired records", acquired(response, topic), [])
    accepted = await member.acknowledge((topic, 0, 0, 9, ACCEPT))
    equal("error of the acknowledgement", entry(accepted, topic).error_code, ErrorCode.NONE)


@case_for_each(
    {"fetch": ("ShareFetch",), "acknowledge": ("ShareAcknowledge",)},
    "share-groups.sessions.closed-by-{name}",
    "KIP-932; SharePartitionManager.releaseSession",
    needs=SHARE,
)
async def closed(run: CaseRun, api: str) -> None:
    """{0} with epoch -1 applies its acknowledgements, ends the session and releases the other records."""
    topic, member = await ten_records(run)
    other = await share_member(run, member.group, topic)
    await member.take(topic)
    equal("acquired by another member", acquired(await other.fetch(topic, wait_ms=0), topic), [])
    epoch, acks = member.epoch, [(topic, 0, 0, 4, ACCEPT)]
    response = await (member.fetch(epoch=-1, acks=acks) if api == "ShareFetch" else member.acknowledge(*acks, epoch=-1))
    equal("error of the response", response.error_code, ErrorCode.NONE)
    code = entry(response, topic).acknowledge_error_code if api == "ShareFetch" else entry(response, topic).error_code
    equal("error of the acknowledgement", code, ErrorCode.NONE)
    equal("acquired by another member", await other.acquire(topic), [(5, 9, 2)])
    again = await member.fetch(epoch=epoch)
    equal("error after the end", again.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)


@case("share-groups.sessions.final-fetch-reads-nothing", "KIP-932; FinalContext", needs=SHARE)
async def final_fetch_reads_nothing(run: CaseRun) -> None:
    """A ShareFetch with epoch -1 returns no records, only the partitions that it acknowledged."""
    topic, member = await ten_taken(run)
    await run.produce(topic, 5)
    response = await member.fetch(epoch=-1, acks=[(topic, 0, 0, 9, ACCEPT)])
    partition = entry(response, topic)
    equal("acquired records", acquired(response, topic), [])
    equal("bytes of records", len(partition.records or b""), 0)


@case(
    "share-groups.sessions.end-of-connection",
    "KIP-932; SharePartitionManager (ConnectionDisconnectListener)",
    needs=SHARE,
)
async def end_of_connection(run: CaseRun) -> None:
    """The end of the connection ends the session and releases its records."""
    topic, member = await ten_records(run)
    other = await share_member(run, member.group, topic)
    await member.take(topic)
    equal("acquired by another member", acquired(await other.fetch(topic, wait_ms=0), topic), [])
    await member.connection.aclose()
    equal("acquired after the end of the connection", await other.acquire(topic), [(0, 9, 2)])
    response = await member.fetch(epoch=member.epoch, on=other.connection)
    equal("error on another connection", response.error_code, ErrorCode.SHARE_SESSION_NOT_FOUND)


@case("share-groups.sessions.moved-connection", "KIP-932; ShareSessionCache (connection of a session)", needs=SHARE)
async def moved_connection(run: CaseRun) -> None:
    """A session that was opened again on another connection survives the end of the first one."""
    topic, member = await ten_records(run)
    first = member.connection
    await member.fetch(topic, wait_ms=0)
    member.connection = await run.connect(first.address)
    await member.fetch(topic, epoch=0, wait_ms=0)
    await first.aclose()
    watcher = await run.connect(member.connection.address)
    for _ in range(3):
        await watcher.request("ApiVersions", 3)
    equal("error after the end of the first connection", (await member.fetch(wait_ms=0)).error_code, ErrorCode.NONE)


@case("share-groups.sessions.epoch-after-the-last", "ShareRequestMetadata.nextEpoch", needs=SHARE)
async def epoch_after_the_last(run: CaseRun) -> None:
    """Epoch 2147483647 is followed by 1 (a session cannot reach it in a test: the wrong one is refused)."""
    topic, member = await ten_records(run)
    await member.fetch(topic, wait_ms=0)
    response = await member.fetch(epoch=LAST_EPOCH)
    equal("error of epoch 2147483647", response.error_code, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
