"""Seeded faults of coordinators on a cluster with three nodes."""

from __future__ import annotations

from kafka_share_proxy.conformance.cluster_thread import running_cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

TOP, GROUPS, COMMITTED = "error_code", "groups[].error_code", "topics[].partitions[].error_code"
ADDED = "results_by_topic_v3_and_below[].results_by_partition[].partition_error_code"
REFUSALS = [
    ("groups.nodes.classic-join", "JoinGroup", TOP),
    ("groups.nodes.classic-sync", "SyncGroup", TOP),
    ("groups.nodes.classic-heartbeat", "Heartbeat", TOP),
    ("groups.nodes.classic-leave", "LeaveGroup", TOP),
    ("groups.nodes.classic-describe", "DescribeGroups", GROUPS),
    ("groups.nodes.classic-delete", "DeleteGroups", "results[].error_code"),
    ("groups.nodes.consumer-heartbeat", "ConsumerGroupHeartbeat", TOP),
    ("groups.nodes.consumer-describe", "ConsumerGroupDescribe", GROUPS),
    ("offsets.nodes.commit", "OffsetCommit", COMMITTED),
    ("offsets.nodes.fetch", "OffsetFetch", GROUPS),
    ("offsets.nodes.delete", "OffsetDelete", TOP),
    ("offsets.nodes.transactional-commit", "TxnOffsetCommit", COMMITTED),
    ("share-groups.nodes.heartbeat", "ShareGroupHeartbeat", TOP),
    ("share-groups.nodes.describe", "ShareGroupDescribe", GROUPS),
    ("share-groups.nodes.describe-offsets", "DescribeShareGroupOffsets", GROUPS),
    ("share-groups.nodes.alter-offsets", "AlterShareGroupOffsets", TOP),
    ("share-groups.nodes.delete-offsets", "DeleteShareGroupOffsets", TOP),
    ("transactions.nodes.init", "InitProducerId", TOP),
    ("transactions.nodes.add-partitions", "AddPartitionsToTxn", ADDED),
    ("transactions.nodes.add-offsets", "AddOffsetsToTxn", TOP),
    ("transactions.nodes.end", "EndTxn", TOP),
    ("transactions.nodes.describe", "DescribeTransactions", "transaction_states[].error_code"),
]
"""Case, API, and the path of its code."""
FAULTS = [
    *(Fault(f"{case}-not-available", case, api, replace(path, 16, 15)) for case, api, path in REFUSALS),
    Fault("coordinator-elsewhere", "metadata.nodes.coordinator-of-group", "FindCoordinator",
          put("coordinators[].port", 1)),
]  # fmt: skip


def test_each_fault_is_caught_by_its_case() -> None:
    with running_cluster() as cluster:
        assert_caught(cluster.bootstrap, FAULTS)
        assert cluster.failures() == []
