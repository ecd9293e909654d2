"""Seeded faults of metadata."""

from __future__ import annotations

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.faulty_broker import Fault, put, replace
from tests.support.seeded_faults import assert_caught

pytestmark = pytest.mark.broker

FAULTS = [
    Fault("no-topic-id", "metadata.topic.v12", "Metadata", put("topics[].topic_id", bytes(16))),
    Fault("leader-epoch-missing", "metadata.topic.v9", "Metadata", put("topics[].partitions[].leader_epoch", -1)),
    Fault("isr-empty", "metadata.topic.v9", "Metadata", put("topics[].partitions[].isr_nodes", [])),
    Fault("unknown-as-leaderless", "metadata.topic.unknown", "Metadata", replace("topics[].error_code", 3, 5)),
    Fault("name-not-checked", "metadata.topic.invalid-name-space", "Metadata", replace("topics[].error_code", 17, 3)),
    Fault("cluster-id-differs", "metadata.brokers.same-cluster", "DescribeCluster", put("cluster_id", "other")),
    Fault("cursor-missing", "metadata.partitions.cursor", "DescribeTopicPartitions", put("next_cursor", None)),
    Fault("validates-only-never", "metadata.create.validate-only", "CreateTopics", request=put("validate_only", False)),
    Fault("exists-not-reported", "metadata.create.exists", "CreateTopics", replace("topics[].error_code", 36, 0)),
    Fault("partitions-shrink", "metadata.partitions.fewer", "CreatePartitions", replace("results[].error_code", 37, 0)),
    Fault(
        "setting-of-the-broker", "metadata.settings.own", "DescribeConfigs", put("results[].configs[].config_source", 5)
    ),
]


def test_each_fault_is_caught_by_its_case(kafka_43_quick: Cluster) -> None:
    assert_caught(kafka_43_quick.bootstrap, FAULTS)
