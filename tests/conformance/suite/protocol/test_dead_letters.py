"""Seeded faults of dead letters, which brokers have from 4.4 on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.records import records

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.support.faulty_broker import Change, Fault, other_setting, put
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


def letters(change: Callable[[records.Record], records.Record]) -> Change:
    """Return a change of the dead letters in Fetch responses."""

    def rebuilt(data: Any) -> bytes:
        view = memoryview(data or b"")
        return b"".join(
            records.build_batch(batch.base_offset, [change(each) for each in letters_of_batch])
            for batch in records.iter_batches(view)
            if (letters_of_batch := records.decode_records(view[batch.position : batch.end]))
        )

    return put("responses[].partitions[].records", rebuilt)


def with_header(name: str, value: bytes) -> Change:
    return letters(lambda letter: letter._replace(headers=[*dict([*letter.headers, (name, value)]).items()]))


def all_in_partition_0(message: Any) -> None:
    for topic in message.responses:
        for partition in topic.partitions:
            if partition.partition_index:
                partition.records = b""


SPANS = "responses[].partitions[].acquired_records"
COUNT = "__dlq.errors.delivery.count"
COPY = "errors.deadletterqueue.copy.record.enable"
FAULTS = [
    Fault("rejected-is-accepted", "dead-letters.rejected", "ShareAcknowledge", request=types(3, 1)),
    Fault("released-is-accepted", "dead-letters.exhausted", "ShareAcknowledge", request=types(2, 1)),
    other_setting("record-not-copied", "dead-letters.copied", COPY, "false"),
    Fault("gap-is-dead", "dead-letters.not-gap", "ShareAcknowledge", request=types(0, 3)),
    Fault("written-without-permission", "dead-letters.without-permission", "ListOffsets",
          put("topics[].partitions[].offset", 1)),
    Fault("expiry-counted-once", "dead-letters.expired", "Fetch", with_header(COUNT, b"1")),
    Fault("first-delivery-named", "dead-letters.later-delivery", "Fetch", with_header(COUNT, b"1")),
    Fault("released-is-dead", "dead-letters.released", "ShareAcknowledge", request=types(2, 3)),
    Fault("source-headers-copied", "dead-letters.source-headers", "Fetch", with_header("origin", b"1")),
    Fault("timestamp-copied", "dead-letters.source-headers", "Fetch", letters(lambda r: r._replace(timestamp=1))),
    Fault("one-partition-only", "dead-letters.partition", "Fetch", all_in_partition_0),
    Fault("wrong-group-named", "dead-letters.groups", "Fetch", with_header("__dlq.errors.group", b"group")),
    Fault("accepted-is-dead", "dead-letters.not-accepted", "ShareAcknowledge", request=types(1, 3)),
    Fault("delivered-again", "dead-letters.not-again", "ShareFetch",
          put(f"{SPANS}[].first_offset", lambda offset: min(offset, 1))),
    Fault("rejected-is-released", "dead-letters.off-by-default", "ShareAcknowledge", request=types(3, 2)),
    Fault("any-name", "dead-letters.internal-name", "IncrementalAlterConfigs", put("responses[].error_code", 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_44: Cluster) -> None:
    assert_caught(kafka_44.bootstrap, FAULTS)
