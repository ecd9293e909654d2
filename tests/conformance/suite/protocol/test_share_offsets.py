"""Seeded faults of start offsets of share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

OFFSETS = "share-groups.offsets"
PARTITIONS = "groups[].topics[].partitions[]"
FAULTS = [
    Fault("start-offset-one-too-high", f"{OFFSETS}.described", "DescribeShareGroupOffsets",
          put(f"{PARTITIONS}.start_offset", lambda n: n + 1)),
    Fault("lag-one-too-low", f"{OFFSETS}.altered-lag", "DescribeShareGroupOffsets",
          put(f"{PARTITIONS}.lag", lambda n: n - 1)),
    Fault("lag-of-an-unused-partition", f"{OFFSETS}.unused-partition", "DescribeShareGroupOffsets",
          put(f"{PARTITIONS}.lag", 0)),
    Fault("holes-count", f"{OFFSETS}.lag-of-holes", "DescribeShareGroupOffsets", put(f"{PARTITIONS}.lag", 10)),
    Fault("topics-left-out", f"{OFFSETS}.all-topics", "DescribeShareGroupOffsets",
          put("groups[].topics", lambda topics: topics[:1])),
    Fault("altered-with-members", f"{OFFSETS}.alter-with-members", "AlterShareGroupOffsets",
          replace("error_code", 68, 0)),
    Fault("not-deleted", f"{OFFSETS}.delete-unknown-group", "DeleteShareGroupOffsets", replace("error_code", 69, 0)),
    Fault("any-setting", "share-groups.settings.invalid-reset", "IncrementalAlterConfigs",
          put("responses[].error_code", 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
