"""Seeded faults of committed offsets."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

FETCHED = "groups[].topics[].partitions[]"
FAULTS = [
    Fault("offset-one-too-high", "offsets.commit.kept", "OffsetFetch",
          put(f"{FETCHED}.committed_offset", lambda n: n + 1)),
    Fault("metadata-dropped", "offsets.commit.kept", "OffsetFetch", put(f"{FETCHED}.metadata", "")),
    Fault("leader-epoch-dropped", "offsets.commit.kept", "OffsetFetch",
          put(f"{FETCHED}.committed_leader_epoch", -1)),
    Fault("none-is-0", "offsets.fetch.none", "OffsetFetch", replace(f"{FETCHED}.committed_offset", -1, 0)),
    Fault("metadata-size-not-checked", "offsets.commit.metadata-too-large", "OffsetCommit",
          replace("topics[].partitions[].error_code", 12, 0)),
    Fault("generation-not-checked", "offsets.commit.of-a-member-generation", "OffsetCommit",
          replace("topics[].partitions[].error_code", 22, 0)),
    Fault("commit-is-dropped", "offsets.commit.lower", "OffsetCommit",
          request=put("topics[].partitions[].committed_offset", 9)),
    Fault("groups-mixed-up", "offsets.fetch.all-topics", "OffsetFetch",
          put("groups[].topics", lambda topics: topics[:1])),
    Fault("not-deleted", "offsets.delete.done", "OffsetDelete", request=put("topics", [])),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
