"""Seeded faults of acquiring records."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker


def _one_by_one(spans: list[object]) -> list[object]:
    """Split every entry of AcquiredRecords into offsets."""
    return [
        type(each)(first_offset=n, last_offset=n, delivery_count=each.delivery_count)  # type: ignore[attr-defined, call-arg]
        for each in spans
        for n in range(each.first_offset, each.last_offset + 1)  # type: ignore[attr-defined]
    ]


ACQUIRE = "share-groups.acquire"
SPANS = "responses[].partitions[].acquired_records"
FAULTS = [
    Fault("last-offset-one-too-high", f"{ACQUIRE}.first-delivery", "ShareFetch",
          put(f"{SPANS}[].last_offset", lambda n: n + 1)),
    Fault("last-offset-one-too-low", f"{ACQUIRE}.first-delivery", "ShareFetch",
          put(f"{SPANS}[].last_offset", lambda n: n - 1)),
    Fault("first-offset-one-too-high", f"{ACQUIRE}.first-delivery", "ShareFetch",
          put(f"{SPANS}[].first_offset", lambda n: n + 1)),
    Fault("count-from-0", f"{ACQUIRE}.first-delivery", "ShareFetch",
          put(f"{SPANS}[].delivery_count", lambda n: n - 1)),
    Fault("count-stays-1", f"{ACQUIRE}.released-before-new", "ShareFetch", put(f"{SPANS}[].delivery_count", 1)),
    Fault("offsets-one-by-one", f"{ACQUIRE}.whole-batch", "ShareFetch", put(SPANS, _one_by_one)),
    Fault("records-missing", f"{ACQUIRE}.first-delivery", "ShareFetch", put("responses[].partitions[].records", b"")),
    Fault("nothing-acquired", f"{ACQUIRE}.released-while-waiting", "ShareFetch", put(SPANS, [])),
    Fault("max-records-ignored", f"{ACQUIRE}.max-records-1", "ShareFetch", request=put("max_records", 500)),
    Fault("max-records-one-too-many", f"{ACQUIRE}.max-records-5", "ShareFetch",
          request=put("max_records", lambda n: n + 1)),
    Fault("batch-size-ignored", f"{ACQUIRE}.batch-size-1", "ShareFetch", request=put("batch_size", 500)),
    Fault("acquire-mode-ignored", f"{ACQUIRE}.record-limit-3", "ShareFetch", request=put("share_acquire_mode", 0)),
    Fault("max-wait-ignored", f"{ACQUIRE}.waits-max-wait", "ShareFetch", request=put("max_wait_ms", 0)),
    Fault("max-bytes-ignored", f"{ACQUIRE}.max-bytes-returns-one-batch", "ShareFetch",
          request=put("max_bytes", 1 << 20)),
    Fault("out-of-range-reported", f"{ACQUIRE}.deleted-records", "ShareFetch",
          put("responses[].partitions[].error_code", 1)),
    Fault("topic-id-changed", f"{ACQUIRE}.every-partition", "ShareFetch", put("responses[].topic_id", b"\1" * 16)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
