"""Seeded faults of views."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

PARTITIONS = "responses[].partitions[]"
FAULTS = [
    Fault("filler-missing", "views.fetch.filler", "Fetch", put(f"{PARTITIONS}.records", b"")),
    Fault("watermark-of-the-view", "views.fetch.watermarks", "Fetch", put(f"{PARTITIONS}.high_watermark", 0)),
    Fault("out-of-range-is-empty", "views.fetch.out-of-range", "Fetch", replace(f"{PARTITIONS}.error_code", 1, 0)),
    Fault("slots-mixed-up", "views.slots.by-key-r2", "Fetch",
          request=put("topics[].partitions[].partition", 0)),
    Fault("slot-missing", "views.metadata.partitions-r2", "Metadata", put("topics[].partitions", lambda p: p[:3])),
    Fault("any-name", "views.metadata.invalid-r1", "Metadata", replace("topics[].error_code", 17, 3)),
    Fault("offsets-of-the-view", "views.list-offsets.latest", "ListOffsets", put("topics[].partitions[].offset", 0)),
    Fault("produce-not-refused", "views.refused.produce", "Produce",
          put("responses[].partition_responses[].error_code", 0)),
    Fault("shown-in-all", "views.create.wrong", "CreateTopics", replace("topics[].error_code", 37, 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(proxy_39: Front) -> None:
    assert_caught(proxy_39.bootstrap, FAULTS)
