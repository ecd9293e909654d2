"""Seeded faults of limits of share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.conformance.suite.protocol.acknowledgement_types import types
from tests.support.faulty_broker import Fault, other_setting, put
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

ACQUIRE = "share-groups.acquire"
SPANS = "responses[].partitions[].acquired_records"
FAULTS = [
    other_setting("window-is-endless", f"{ACQUIRE}.window-of-locks", "share.partition.max.record.locks", "1000"),
    other_setting("limit-one-too-high", f"{ACQUIRE}.delivery-limit", "share.delivery.count.limit", "3"),
    Fault("batches-never-divided", f"{ACQUIRE}.throttled-near-the-limit", "ShareFetch",
          put(f"{SPANS}[].last_offset", lambda n: max(n, 99))),
    Fault("deliveries-counted-twice", f"{ACQUIRE}.default-delivery-limit", "ShareFetch",
          put(f"{SPANS}[].delivery_count", lambda n: 2 * n)),
    Fault("released-in-window-lost", f"{ACQUIRE}.released-in-a-full-window", "ShareAcknowledge",
          request=types(2, 1)),
    Fault("alteration-forgets-nothing", f"{ACQUIRE}.altered-start-offset", "AlterShareGroupOffsets",
          request=put("topics[].partitions[].start_offset", 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
