"""Seeded faults of Produce."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.records import records

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


def without_ids(message: object) -> None:
    """Make batches those of a producer without an id: sequences are not checked."""
    for topic in message.topic_data:  # type: ignore[attr-defined]
        for partition in topic.partition_data:
            data = bytes(partition.records)
            partition.records = records.seal(data[:43] + b"\xff" * 14 + data[57:])


PRODUCE, IDEMPOTENCE = "produce-fetch.produce", "produce-fetch.idempotence"
PARTITIONS = "responses[].partition_responses[]"
FAULTS = [
    Fault("base-offset-one-too-high", f"{PRODUCE}.acks-all", "Produce",
          put(f"{PARTITIONS}.base_offset", lambda n: n + 1)),
    Fault("always-append-time", f"{PRODUCE}.acks-leader", "Produce", put(f"{PARTITIONS}.log_append_time_ms", 5)),
    Fault("response-without-acks", f"{PRODUCE}.acks-none", "Produce", request=put("acks", 1)),
    Fault("acks-not-checked", f"{PRODUCE}.invalid-acks-2", "Produce", request=replace("acks", 2, 1)),
    Fault("checksum-not-reported", f"{PRODUCE}.bad-batch-checksum", "Produce",
          replace(f"{PARTITIONS}.error_code", 2, 0)),
    Fault("records-dropped", f"{PRODUCE}.codec-gzip", "Fetch", put("responses[].partitions[].records", b"")),
    Fault("duplicates-appended", f"{IDEMPOTENCE}.duplicate", "Produce", request=without_ids),
    Fault("sequence-not-checked", f"{IDEMPOTENCE}.sequence-gap", "Produce", request=without_ids),
    Fault("duplicate-as-error", f"{IDEMPOTENCE}.old-duplicate", "Produce", put(f"{PARTITIONS}.base_offset", -1)),
    Fault("epoch-not-checked", f"{IDEMPOTENCE}.old-epoch", "Produce", replace(f"{PARTITIONS}.error_code", 47, 0)),
    Fault("same-producer-id", f"{IDEMPOTENCE}.producer-id", "InitProducerId", put("producer_id", 7)),
    Fault("record-errors-missing", f"{PRODUCE}.compacted-without-key", "Produce",
          put(f"{PARTITIONS}.record_errors", [])),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
