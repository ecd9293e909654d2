"""Settings of topics: the target accepts, refuses and describes what a native 4.3.0 does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_share_proxy.conformance.cluster_thread import running_cluster
from kafka_share_proxy.conformance.target.server import TargetOptions
from kafka_share_proxy.conformance.target.topic_configs import KEYS
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.raw import Raw

pytestmark = pytest.mark.broker

TOPIC = 2
"""Type of the resource."""
VALUES = (
    *("", "x", "*", "true", "TRUE", "0", "1", "-1", "-2", "-3", "4", " 9 ", "+10", "17", "18", "22", "23", "1_0"),
    *("0.2", "1e-1", "1.1", "-0.5", ".5f", "compact", "compact, delete", "delete,delete", ",delete", "gzip", "GZIP"),
    *("1048575", "1048576", "-131072", "-131073", "2147483647", "2147483648", "9223372036854775807"),
    *("9223372036854775808", "createtime", "LogAppendTime", "0:1,1:2", "0:1,", "none"),
)
"""Values that each setting gets: some are valid for it, some are on a bound, others of another type."""
CONFLICTS = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
OF_THE_TEST = {"segment.bytes": "2000000"}
"""The clusters of the tests have another default."""


def accepted(raw: Raw, topic: str) -> dict[tuple[str, ...], int]:
    """Return the error code of each setting with each value, and of two that contradict each other."""
    tried = [{name: value} for name in KEYS for value in VALUES] + [CONFLICTS, {"no.such.setting": "1"}]
    topics = [
        {
            "name": f"{topic}-{number}",
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        for number, configs in enumerate(tried)
    ]
    response = raw.send_request("CreateTopics", 7, topics=topics, timeout_ms=30_000, validate_only=True)
    codes = {each.name: each.error_code for each in response.topics}
    return {
        tuple(f"{name}={value}" for name, value in configs.items()): codes[f"{topic}-{number}"]
        for number, configs in enumerate(tried)
    }


def described(raw: Raw, topic: str) -> dict[str, tuple[str | None, int]]:
    """Return value and type of each setting of a topic."""
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}]
    response = raw.send_request("DescribeConfigs", 4, resources=resources)
    return {each.name: (each.value, each.config_type) for each in response.results[0].configs}


def test_the_same_settings_are_accepted_and_described(kafka_43: Cluster, fresh: Callable[[str], str]) -> None:
    topic = fresh("topic")
    odd = {"min.cleanable.dirty.ratio": " 1e-1 ", "cleanup.policy": "compact, delete", "preallocate": "True"}
    with (
        running_cluster(TargetOptions(nodes=1)) as target,
        Raw(kafka_43.bootstrap) as native,
        Raw(target.bootstrap) as ours,
    ):
        for raw in (native, ours):
            raw.create_topic(topic, configs=OF_THE_TEST)
        assert accepted(ours, topic) == accepted(native, topic)
        assert described(ours, topic) == described(native, topic)
        for raw in (native, ours):
            assert raw.try_configure(TOPIC, topic, odd).error_code == 0
        assert described(ours, topic) == described(native, topic)
