"""Cases of ListOffsets and DeleteRecords."""

from __future__ import annotations

import time
from typing import Any

from kafka_share_proxy.conformance.suite.case_run import CaseRun
from kafka_share_proxy.conformance.suite.cases import case, case_for_each
from kafka_share_proxy.conformance.suite.cluster_under_test import CaseTopic
from kafka_share_proxy.conformance.suite.expectations import equal
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import records

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
START_MS = int(time.time() * 1000) - 60_000


# ListOffsets and DeleteRecords


async def list_offsets(run: CaseRun, topic: CaseTopic, timestamp: int, partition: int = 0, **fields: Any) -> Any:
    """Return the partition of a ListOffsets response."""
    entry = {"partition_index": partition, "timestamp": timestamp} | fields
    topics = [{"name": topic.name, "partitions": [entry]}]
    response = await run.request("ListOffsets", await run.leader(topic), replica_id=-1, topics=topics)
    return response.topics[0].partitions[0]


async def timed(run: CaseRun) -> CaseTopic:
    """Return a topic with records at START_MS + 0, 100, 300, 200 ms, each in a separate batch."""
    topic = await run.topic()
    for delay in (0, 100, 300, 200):
        batch_records = [records.Record(value=b"v", timestamp=START_MS + delay)]
        await run.append(topic, records.build_batch(0, batch_records))
    return topic


@case_for_each(
    {
        "earliest": (EARLIEST, (0, -1)),
        "latest": (LATEST, (4, -1)),
        "before-all": (START_MS - 1, (0, START_MS)),
        "exact": (START_MS + 100, (1, START_MS + 100)),
        "between": (START_MS + 101, (2, START_MS + 300)),
        "after-all": (START_MS + 301, (-1, -1)),
        "largest": (MAX_TIMESTAMP, (2, START_MS + 300)),
    },
    "produce-fetch.list-offsets.{name}",
    "KIP-79, KIP-734; ListOffsetsResponse.json",
    needs=("ListOffsets:7",),
)
async def offsets_by_time(run: CaseRun, timestamp: int, expected: tuple[int, int]) -> None:
    """ListOffsets for timestamp {0} returns offset and timestamp {1}."""
    partition = await list_offsets(run, await timed(run), timestamp)
    equal("ErrorCode", partition.error_code, ErrorCode.NONE)
    equal("Offset and Timestamp", (partition.offset, partition.timestamp), expected)


@case("produce-fetch.list-offsets.unknown-partition", "KafkaApis.handleListOffsetRequest")
async def unknown_offsets(run: CaseRun) -> None:
    """ListOffsets of an unknown partition gets UNKNOWN_TOPIC_OR_PARTITION."""
    topic = await run.topic()
    code = (await list_offsets(run, topic, LATEST, partition=9)).error_code
    equal("ErrorCode", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case("produce-fetch.list-offsets.twice", "KafkaApis.handleListOffsetRequest (duplicatePartitions)")
async def listed_twice(run: CaseRun) -> None:
    """ListOffsets that names a partition twice gets INVALID_REQUEST for it."""
    topic = await run.topic()
    entry = {"partition_index": 0, "timestamp": LATEST}
    topics = [{"name": topic.name, "partitions": [entry, entry]}]
    response = await run.request("ListOffsets", await run.leader(topic), replica_id=-1, topics=topics)
    codes = {each.error_code for part in response.topics for each in part.partitions}
    equal("errors", codes, {int(ErrorCode.INVALID_REQUEST)})


async def delete(run: CaseRun, topic: CaseTopic, offset: int, partition: int = 0) -> Any:
    """Return the partition of a DeleteRecords response."""
    topics = [{"name": topic.name, "partitions": [{"partition_index": partition, "offset": offset}]}]
    response = await run.request("DeleteRecords", await run.leader(topic), topics=topics, timeout_ms=5000)
    return response.topics[0].partitions[0]


@case_for_each(
    {"some": (2, (0, 2)), "all": (-1, (0, 5)), "nothing": (0, (0, 0)), "too-many": (6, (1, -1))},
    "produce-fetch.delete-records.{name}",
    "KIP-107; DeleteRecordsResponse.json",
)
async def deleted(run: CaseRun, offset: int, expected: tuple[int, int]) -> None:
    """DeleteRecords before {0} of five records returns (error, low watermark) {1}."""
    topic = await run.topic(count=5)
    actual = await delete(run, topic, offset)
    equal("error and low watermark", (actual.error_code, actual.low_watermark), expected)
    start = max(expected[1], 0)
    equal("earliest offset", (await list_offsets(run, topic, EARLIEST)).offset, start)


@case("produce-fetch.delete-records.unknown-partition", "KafkaApis.handleDeleteRecordsRequest")
async def deleted_unknown(run: CaseRun) -> None:
    """DeleteRecords of an unknown partition gets UNKNOWN_TOPIC_OR_PARTITION."""
    code = (await delete(run, await run.topic(), 0, 9)).error_code
    equal("ErrorCode", code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@case_for_each(
    {
        "none": (-1, ErrorCode.NONE),
        "current": (0, ErrorCode.NONE),
        "earlier": (-2, ErrorCode.FENCED_LEADER_EPOCH),
        "later": (99, ErrorCode.UNKNOWN_LEADER_EPOCH),
    },
    "produce-fetch.epochs.list-offsets-{name}",
    "KIP-320; Partition.checkCurrentLeaderEpoch",
)
async def list_offsets_epoch(run: CaseRun, epoch: int, code: ErrorCode) -> None:
    """ListOffsets with CurrentLeaderEpoch {0} of a partition in epoch 0 gets {1.name}."""
    topic = await run.topic(count=1)
    equal("ErrorCode", (await list_offsets(run, topic, LATEST, current_leader_epoch=epoch)).error_code, code)
