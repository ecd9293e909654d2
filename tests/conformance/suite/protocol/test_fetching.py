"""Seeded faults of Fetch, ListOffsets and DeleteRecords."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

FETCH, SESSIONS, ISOLATION = "produce-fetch.fetch", "produce-fetch.sessions", "produce-fetch.isolation"
PARTITIONS = "responses[].partitions[]"
LISTED = "topics[].partitions[]"
FAULTS = [
    Fault("high-watermark-one-too-high", f"{FETCH}.from-the-start", "Fetch",
          put(f"{PARTITIONS}.high_watermark", lambda n: n + 1)),
    Fault("max-bytes-ignored", f"{FETCH}.one-batch-at-least", "Fetch",
          request=put("topics[].partitions[].partition_max_bytes", 1 << 20)),
    Fault("out-of-range-is-empty", f"{FETCH}.out-of-range-above", "Fetch", replace(f"{PARTITIONS}.error_code", 1, 0)),
    Fault("max-wait-ignored", f"{FETCH}.waits-max-wait", "Fetch", request=put("max_wait_ms", 0)),
    Fault("no-session", f"{SESSIONS}.established", "Fetch", put("session_id", 0)),
    Fault("session-epoch-not-checked", f"{SESSIONS}.epoch-ahead", "Fetch", replace("error_code", 71, 0)),
    Fault("session-never-unknown", f"{SESSIONS}.unknown", "Fetch", replace("error_code", 70, 0)),
    Fault("forgotten-is-ignored", f"{SESSIONS}.forgotten", "Fetch", request=put("forgotten_topics_data", [])),
    Fault("isolation-ignored", f"{ISOLATION}.open-transaction", "Fetch", request=put("isolation_level", 0)),
    Fault("aborted-not-listed", f"{ISOLATION}.aborted", "Fetch", put(f"{PARTITIONS}.aborted_transactions", [])),
    Fault("leader-epoch-ignored", "produce-fetch.epochs.fetch-later", "Fetch",
          request=put("topics[].partitions[].current_leader_epoch", -1)),
    Fault("divergence-ignored", "produce-fetch.epochs.diverging", "Fetch",
          request=put("topics[].partitions[].last_fetched_epoch", -1)),
    Fault("end-of-epoch-one-too-high", "produce-fetch.epochs.end-of-epoch-current", "OffsetForLeaderEpoch",
          put(f"{LISTED}.end_offset", lambda n: n + 1)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
