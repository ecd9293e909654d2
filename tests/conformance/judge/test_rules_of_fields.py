"""Each rule for values of fields: a request that violates it, and one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.judge.rules_of_fields import RULES, fields
from kafka_share_proxy.wire.definitions import messages

from tests.support.judged import TOPIC_ID, batch, found_after, produce, share_fetch


def commit(offset: int, metadata: str | None = "", partition: int = 0) -> Any:
    kinds = messages.OffsetCommitRequest
    entry = kinds.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    topic = kinds.OffsetCommitRequestTopic(name="t", partitions=[entry])
    return kinds(group_id="g", topics=[topic])


def fetch(offset: int = 0, partitions: tuple[int, ...] = (0,), **values: Any) -> Any:
    kinds = messages.FetchRequest
    entries = [kinds.FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1) for each in partitions]
    topic = kinds.FetchTopic(topic="t", topic_id=values.pop("topic_id", TOPIC_ID), partitions=entries)
    return kinds(**{"max_wait_ms": 500, "min_bytes": 1, "topics": [topic], **values})


def list_offsets(timestamp: int) -> Any:
    kinds = messages.ListOffsetsRequest
    entry = kinds.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return kinds(replica_id=-1, topics=[kinds.ListOffsetsTopic(name="t", partitions=[entry])])


def metadata(name: str) -> Any:
    kinds = messages.MetadataRequest
    return kinds(topics=[kinds.MetadataRequestTopic(name=name)])


Request = tuple[Any, int | None]
HEARTBEAT = messages.HeartbeatRequest
INIT = messages.InitProducerIdRequest

CASES: dict[str, tuple[list[Request], list[Request]]] = {
    "partition-negative": ([(commit(1, partition=-1), 9)], [(commit(1), 9)]),
    "topic-name-invalid": (
        [(metadata(name), 12) for name in ("", ".", "..", "a b", "x" * 250)],
        [(metadata(name), 12) for name in ("a", "...", "A-b_c.9", "x" * 249)],
    ),
    "topic-id-zero": ([(fetch(topic_id=bytes(16)), 13)], [(fetch(), 13), (fetch(topic_id=bytes(16)), 12)]),
    "group-id-empty": (
        [(HEARTBEAT(group_id="", generation_id=1, member_id="m"), None)],
        [(HEARTBEAT(group_id="g", generation_id=1, member_id="m"), None)],
    ),
    "timeout-negative": (
        [(fetch(max_wait_ms=-1), 13), (INIT(transactional_id="x", transaction_timeout_ms=-1), 4)],
        [(fetch(max_wait_ms=0), 13), (INIT(transactional_id=None, transaction_timeout_ms=-1), 4)],
    ),
    "isolation-level-invalid": ([(fetch(isolation_level=2), 13)], [(fetch(isolation_level=1), 13)]),
    "acks-invalid": ([(produce(batch(), acks=2), 9)], [(produce(batch(), acks=each), 9) for each in (-1, 0, 1)]),
    "replica-id-set": ([(fetch(replica_id=1), 13)], [(fetch(), 13), (fetch(), 17)]),
    "partition-repeated": ([(fetch(partitions=(0, 1, 0)), 13)], [(fetch(partitions=(0, 1)), 13)]),
    "fetch-sizes-negative": (
        [(fetch(min_bytes=-1), 13), (share_fetch(0, max_records=-1), None)],
        [(fetch(min_bytes=0), 13), (share_fetch(0), None)],
    ),
    "fetch-offset-negative": ([(fetch(offset=-1), 13)], [(fetch(offset=0), 13)]),
    "commit-invalid": (
        [(commit(-1), 9), (commit(0, "x" * 4097), 9)],
        [(commit(0), 9), (commit(0, "x" * 4096), 9), (commit(0, None), 9)],
    ),
    "timestamp-invalid": ([(list_offsets(-7), None)], [(list_offsets(each), None) for each in (-6, -2, -1, 0, 1)]),
}
RULE_IDS = [rule.id for rule in RULES]


@pytest.mark.parametrize("rule", RULE_IDS)
def test_a_violation_is_found(rule: str) -> None:
    for request, version in CASES[rule][0]:
        assert found_after(lambda client, it=(request, version): client.send(it[0], version=it[1])) == {rule}


@pytest.mark.parametrize("rule", RULE_IDS)
def test_a_correct_request_has_no_finding(rule: str) -> None:
    for request, version in CASES[rule][1]:
        assert found_after(lambda client, it=(request, version): client.send(it[0], version=it[1])) == set()


def test_fields_of_nested_structures_are_included() -> None:
    names = [spec.name for spec, _ in fields(fetch(), 13)]
    assert {"MaxWaitMs", "TopicId", "FetchOffset"} <= set(names)
    assert "Topic" not in names
