"""Seeded faults of transactions."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

FAULTS = [
    Fault("epoch-not-bumped", "transactions.init.same-id", "InitProducerId", put("producer_epoch", 0)),
    Fault("fenced-may-add", "transactions.fenced.add", "AddPartitionsToTxn",
          replace("results_by_topic_v3_and_below[].results_by_partition[].partition_error_code", 90, 0)),
    Fault("fenced-may-end", "transactions.fenced.end", "EndTxn", replace("error_code", 90, 0)),
    Fault("ends-without-transaction", "transactions.end.without-transaction-commit", "EndTxn",
          replace("error_code", 48, 0)),
    Fault("commit-aborts", "transactions.end.marker-commit", "EndTxn", request=put("committed", False)),
    Fault("offsets-aborted", "transactions.offsets.commit", "EndTxn", request=put("committed", False)),
    Fault("pending-is-stable", "transactions.offsets.pending", "OffsetFetch", request=put("require_stable", False)),
    Fault("timeout-not-checked", "transactions.init.timeout-too-long", "InitProducerId",
          replace("error_code", 50, 0)),
    Fault("state-of-the-past", "transactions.describe.ongoing", "DescribeTransactions",
          put("transaction_states[].transaction_state", "Empty")),
    Fault("sequence-of-the-first", "transactions.producers.described", "DescribeProducers",
          put("topics[].partitions[].active_producers[].last_sequence", 0)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
