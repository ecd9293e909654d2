"""Seeded faults of groups of KIP-848."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

CONSUMER = "groups.consumer"
FAULTS = [
    Fault("epoch-not-checked", f"{CONSUMER}.epoch-too-high", "ConsumerGroupHeartbeat", replace("error_code", 110, 0)),
    Fault("epoch-after-leaving", f"{CONSUMER}.leave", "ConsumerGroupHeartbeat", replace("member_epoch", -1, 0)),
    Fault("instance-taken-over", f"{CONSUMER}.static-in-use", "ConsumerGroupHeartbeat", replace("error_code", 111, 0)),
    Fault("any-assignor", f"{CONSUMER}.unknown-assignor", "ConsumerGroupHeartbeat", replace("error_code", 112, 0)),
    Fault("shape-not-checked", f"{CONSUMER}.invalid-null-owned", "ConsumerGroupHeartbeat",
          replace("error_code", 42, 0)),
    Fault("commit-epoch-not-checked", f"{CONSUMER}.commit-later", "OffsetCommit",
          replace("topics[].partitions[].error_code", 113, 0)),
    Fault("epochs-differ", f"{CONSUMER}.described", "ConsumerGroupDescribe",
          put("groups[].assignment_epoch", lambda n: n - 1)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
