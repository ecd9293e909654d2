"""Cases of the partitions of a share session."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case
from kafka_share_proxy.conformance.suite.expectations import equal, true
from kafka_share_proxy.conformance.suite.protocol.share_sessions import ten_records, ten_taken
from kafka_share_proxy.conformance.suite.share_members import (
    ACCEPT,
    SHARE,
    acquired,
    entry,
    find_entry,
    share_group,
    share_member,
)
from kafka_share_proxy.wire.errors import ErrorCode


@case("share-groups.sessions.forgotten-partition", "ShareFetchRequest.json; ShareSession.update", needs=SHARE)
async def forgotten_partition(run: CaseRun) -> None:
    """A partition in ForgottenTopicsData leaves the session and is not fetched again."""
    topic, member = await ten_records(run, partitions=2)
    actual: set[int] = set()

    def complete(response: Any) -> bool:
        actual.update(p for p in (0, 1) if acquired(response, topic, p))
        return actual == {0, 1}

    await member.fetch_until(complete, topic)
    await member.fetch(forget=[(topic, 0)], wait_ms=0)
    for partition in (0, 1):
        await run.produce(topic, 1, partition=partition)
    response = await member.take()
    equal("acquired of the remaining partition", acquired(response, topic, 1), [(10, 10, 1)])
    equal("entry of the forgotten partition", find_entry(response, topic, 0), None)


@case("share-groups.sessions.forgotten-keeps-locks", "KIP-932; ShareSession.update", needs=SHARE)
async def forgotten_keeps_locks(run: CaseRun) -> None:
    """Forgetting a partition does not release its records: they can still be acknowledged."""
    topic, member = await ten_taken(run)
    await member.fetch(forget=[(topic, 0)], wait_ms=0)
    equal("error of the acknowledgement", await member.acknowledge_code((topic, 0, 0, 9, ACCEPT)), ErrorCode.NONE)


@case("share-groups.sessions.acknowledged-and-forgotten", "KIP-932; KafkaApis.handleShareFetchRequest", needs=SHARE)
async def acknowledged_and_forgotten(run: CaseRun) -> None:
    """Acknowledgements for a partition that the same request forgets are applied."""
    topic, member = await ten_taken(run)
    response = await member.fetch(acks=[(topic, 0, 0, 9, ACCEPT)], forget=[(topic, 0)], wait_ms=0)
    equal("error of the acknowledgement", entry(response, topic).acknowledge_error_code, ErrorCode.NONE)
    await run.produce(topic, 3)
    later = await member.fetch(wait_ms=300)
    equal("entry of the forgotten partition", find_entry(later, topic), None)


@case("share-groups.sessions.added-partition", "KIP-932; ShareSession.update", needs=SHARE)
async def added_partition(run: CaseRun) -> None:
    """A partition that is named in a later request joins the session."""
    topic, member = await ten_records(run, partitions=2)
    equal("acquired of partition 0", await member.acquire(topic, 0), [(0, 9, 1)])
    response = await member.take((topic, 1))
    equal("acquired of partition 1", acquired(response, topic, 1), [(0, 9, 1)])


@case("share-groups.sessions.unchanged-left-out", "KIP-932; ShareSessionContext", needs=SHARE)
async def unchanged_left_out(run: CaseRun) -> None:
    """A partition without anything new is left out of a later response."""
    _, member = await ten_taken(run)
    response = await member.fetch(wait_ms=0)
    equal("partitions in the response", list(response.responses), [])


@case("share-groups.sessions.acknowledged-in-response", "KIP-932; ShareFetchResponse.json", needs=SHARE)
async def acknowledged_in_response(run: CaseRun) -> None:
    """A partition that carried acknowledgements is in the response, with empty records."""
    topic, member = await ten_taken(run)
    response = await member.fetch(acks=[(topic, 0, 0, 9, ACCEPT)], wait_ms=0)
    partition = entry(response, topic)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("AcknowledgeErrorCode", partition.acknowledge_error_code, ErrorCode.NONE)
    true("Records", partition.records is not None and len(partition.records) == 0, "empty, not null", partition.records)


@case(
    "share-groups.sessions.without-partitions",
    "KIP-932; KafkaApis.handleShareFetchRequest (empty session)",
    needs=SHARE,
)
async def without_partitions(run: CaseRun) -> None:
    """A session without partitions is accepted, and its fetch does not wait."""
    _, member = await ten_records(run)
    response = await member.fetch(epoch=0, wait_ms=10_000)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("partitions in the response", list(response.responses), [])


@case("share-groups.sessions.unknown-partition", "KIP-932; SharePartitionManager", needs=SHARE)
async def unknown_partition(run: CaseRun) -> None:
    """A partition that the topic does not have gets UNKNOWN_TOPIC_OR_PARTITION, and the session continues."""
    topic, member = await ten_records(run)
    response = await member.fetch((topic, 7), wait_ms=0)
    equal("error of the response", response.error_code, ErrorCode.NONE)
    equal("error of the partition", entry(response, topic, 7).error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    equal("error at epoch 1", (await member.fetch(topic, wait_ms=0)).error_code, ErrorCode.NONE)


@case("share-groups.sessions.member-of-two-topics", "KIP-932; ShareFetchRequest.json", needs=SHARE)
async def member_of_two_topics(run: CaseRun) -> None:
    """One request acquires records of several topics, each under its topic id."""
    first, second = await run.topic(count=3), await run.topic(count=4)
    member = await share_member(run, await share_group(run, first, second), first)
    actual: dict[bytes, Any] = {}

    def complete(response: Any) -> bool:
        for topic in (first, second):
            if spans := acquired(response, topic):
                actual[topic.topic_id] = spans
        return len(actual) == 2

    await member.fetch_until(complete, first, second)
    equal("acquired of the first topic", actual[first.topic_id], [(0, 2, 1)])
    equal("acquired of the second topic", actual[second.topic_id], [(0, 3, 1)])
