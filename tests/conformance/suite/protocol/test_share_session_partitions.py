"""Seeded faults of the partitions of a share session."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

SESSIONS = "share-groups.sessions"
FAULTS = [
    Fault("forgotten-is-ignored", f"{SESSIONS}.forgotten-partition", "ShareFetch",
          request=put("forgotten_topics_data", [])),
    Fault("acknowledged-left-out", f"{SESSIONS}.acknowledged-in-response", "ShareFetch", put("responses", [])),
    Fault("unknown-partition-is-fine", f"{SESSIONS}.unknown-partition", "ShareFetch",
          replace("responses[].partitions[].error_code", 3, 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
