"""Seeded faults of members of share groups."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

MEMBERSHIP = "share-groups.membership"
FAULTS = [
    Fault("epoch-not-checked", f"{MEMBERSHIP}.epoch-too-high", "ShareGroupHeartbeat", replace("error_code", 110, 0)),
    Fault("no-interval", f"{MEMBERSHIP}.join", "ShareGroupHeartbeat", put("heartbeat_interval_ms", 0)),
    Fault("null-assignment-at-join", f"{MEMBERSHIP}.join", "ShareGroupHeartbeat", put("assignment", None)),
    Fault("member-id-replaced", f"{MEMBERSHIP}.join", "ShareGroupHeartbeat", put("member_id", "other")),
    Fault("epoch-after-leaving", f"{MEMBERSHIP}.leave", "ShareGroupHeartbeat", replace("member_epoch", -1, 5)),
    Fault(
        "unknown-member-accepted", f"{MEMBERSHIP}.unknown-member", "ShareGroupHeartbeat", replace("error_code", 25, 0)
    ),
    Fault("shape-not-checked", f"{MEMBERSHIP}.invalid-empty-rack", "ShareGroupHeartbeat", replace("error_code", 42, 0)),
]


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
