"""Seeded faults of individual commits."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.front import Front

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

FETCHED = "groups[].topics[].partitions[]"
EFFECT = "individual-commits.effect"
FAULTS = [
    Fault("offset-not-moved", f"{EFFECT}.touching", "OffsetFetch", put(f"{FETCHED}.committed_offset", 0)),
    Fault("ranges-dropped", f"{EFFECT}.behind-a-hole", "OffsetFetch", put(f"{FETCHED}.metadata", "")),
    Fault("ranges-not-stored", f"{EFFECT}.merged", "OffsetCommit",
          request=put("topics[].partitions[].committed_metadata", "")),
    Fault("rewind-ignored", f"{EFFECT}.rewind-by-plain", "OffsetFetch", put(f"{FETCHED}.metadata", "ic/1;7-8")),
    Fault("text-not-checked", "individual-commits.refused.not-a-number", "OffsetCommit",
          replace("topics[].partitions[].error_code", 42, 0)),
    Fault("user-text-lost", f"{EFFECT}.user-text", "OffsetFetch", put(f"{FETCHED}.metadata", "ic/1;")),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(proxy_39: Front) -> None:
    assert_caught(proxy_39.bootstrap, FAULTS)
