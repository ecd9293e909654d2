"""A cluster in a thread, for tests without Trio."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.cluster_thread import FindingsError, KafkaCluster, KafkaFaults, running_cluster
from kafka_share_proxy.conformance.target.actions import ActionError
from kafka_share_proxy.conformance.target.server import TargetOptions
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.values import Address

from tests.support.blocking_connection import Connection


def connect(cluster: KafkaCluster) -> Connection:
    host, _, port = cluster.bootstrap.partition(",")[0].partition(":")
    return Connection(Address(host, int(port)))


def metadata(connection: Connection) -> Any:
    return connection.send_request(3, 12, messages.MetadataRequest(topics=None))


def test_a_cluster_serves_and_is_controlled_from_another_thread() -> None:
    with running_cluster() as cluster:
        assert cluster.create_topic("orders", 2, **{"max.message.bytes": "1000"}) == "orders"
        with connect(cluster) as connection:
            assert [topic.name for topic in metadata(connection).topics] == ["orders"]
        assert [cluster.append("orders", "a", "b", partition=1), cluster.append("orders", "c", partition=1)] == [0, 2]
        leader = cluster.state()["topics"][0]["partitions"][0]["leader"]
        cluster.move_leader("orders", 0, leader % 3 + 1)
        cluster.move_coordinator("g", 2)
        cluster.configure_group("g", share_auto_offset_reset="earliest")
        cluster.configure_group("g", share_record_lock_duration_ms=15_000)
        cluster.create_topic("small", max_message_bytes=1000)
        cluster.take_node_down(3)
        assert [node["up"] for node in cluster.state()["nodes"]] == [True, True, False]
        cluster.bring_node_up(3)
        assert cluster.failures() == []


def test_the_clock_is_advanced() -> None:
    with running_cluster() as cluster:
        cluster.stop_clock()
        before = cluster.state()["clock"]["now_s"]
        cluster.advance_clock(30)
        assert cluster.state()["clock"]["now_s"] == pytest.approx(before + 30)
        cluster.resume_clock()
        assert cluster.state()["clock"]["runs"]


def test_findings_are_an_error_unless_they_are_allowed() -> None:
    with running_cluster() as cluster:
        cluster.check_findings()
        with connect(cluster) as connection:
            connection.send_request(12, 4, messages.HeartbeatRequest(group_id="", generation_id=1, member_id="m"))
        assert [finding["rule"] for finding in cluster.findings()] == ["api-versions-missing", "group-id-empty"]
        with pytest.raises(FindingsError, match="group-id-empty: GroupId is ''"):
            cluster.check_findings()
        cluster.check_findings("group-id-empty")


def test_faults_are_counted() -> None:
    with running_cluster() as cluster, connect(cluster) as connection:
        faults = KafkaFaults(cluster)
        number = faults.add(api="Metadata", throttle_ms=50, count=1)
        assert [metadata(connection).throttle_time_ms for _ in range(2)] == [50, 0]
        assert faults.applied(number) == 1
        faults.remove(number)
        faults.clear()
        with pytest.raises(ActionError, match="there is no"):
            faults.remove(number)


def test_a_cluster_that_cannot_start_raises_the_reason() -> None:
    with pytest.raises(ValueError, match="a cluster has 1 to"), running_cluster(TargetOptions(nodes=0)):
        pass
