"""Seeded faults of ListOffsets and DeleteRecords."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

LISTED = "topics[].partitions[]"
FAULTS = [
    Fault("offset-by-time-one-too-high", "produce-fetch.list-offsets.exact", "ListOffsets",
          put(f"{LISTED}.offset", lambda n: n + (n > 0))),
    Fault("timestamp-missing", "produce-fetch.list-offsets.between", "ListOffsets", put(f"{LISTED}.timestamp", -1)),
    Fault("low-watermark-missing", "produce-fetch.delete-records.some", "DeleteRecords",
          put(f"{LISTED}.low_watermark", -1)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
