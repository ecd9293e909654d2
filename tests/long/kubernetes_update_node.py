"""Updates of the chart's proxies under load (kubernetes_update.py runs this file on a small node).

Members of a share group on the stock Java client and a stock producer use the Service. Every pod is replaced, with
another address. Nothing may be lost, and nothing settled twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster as Kafka

from tests.support.brokers import OLD, Running
from tests.support.chart_pods import HOST, PORTS, SERVICE_IP, pods_of_chart, with_service_address
from tests.support.group_at_work import GroupAtWork
from tests.support.node_network import Node, Service
from tests.support.rolling import Outcome, Plan
from tests.support.small_replicas import Replicas

PLAN = Plan(rate=300, partitions=3, members=3)
BEFORE_S, AFTER_S = 5.0, 5.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return with_service_address(Node(tmp_path_factory.mktemp("node")))


@pytest.fixture
def kafka(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    running = Running(tmp_path_factory.mktemp("brokers"))
    yield running.cluster(OLD)
    running.close()


def updated(pods: Replicas, update: Callable[[], None], folder: Path) -> Outcome:
    """Return what happened to the load while the pods were updated."""
    with Service(SERVICE_IP, PORTS, pods.endpoints) as service:
        load = GroupAtWork(f"{HOST}:9092", folder, PLAN)
        try:
            load.begin()
            load.work(BEFORE_S)
            began = time.monotonic()
            updating = threading.Thread(target=update)
            updating.start()
            while updating.is_alive():
                load.work(0.2)
            took_s = time.monotonic() - began
            load.work(AFTER_S)
            load.finish()
        except (AssertionError, TimeoutError):
            print(pods.described()[-20_000:])
            raise
        finally:
            load.kill()
    load.report(f"{len(pods.former)} proxies replaced in {took_s:.0f} s")
    print(f"{service.connections} connections through the Service, {service.refused} refused")
    return load.outcome


def assert_in_order(pods: Replicas, outcome: Outcome) -> None:
    """Check that nothing was lost or settled twice, and that every proxy ended by itself in time."""
    assert outcome.faults() == []
    for pod in pods.former:
        assert pod.container("proxy").status == 0, pods.described()[-20_000:]
        assert [event.kind for event in pod.events if event.kind == "SIGKILL"] == []


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rolling_update_of_a_fleet_loses_nothing_and_settles_nothing_twice(
    node: Node, kafka: Kafka, tmp_path: Path
) -> None:
    with pods_of_chart(node, kafka, "fleet") as fleet:
        outcome = updated(fleet, fleet.update, tmp_path)
        assert len(fleet.former) == len(fleet.pods) == 3
        assert_in_order(fleet, outcome)


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_update_of_a_single_proxy_loses_nothing_and_settles_nothing_twice(
    node: Node, kafka: Kafka, tmp_path: Path
) -> None:
    with pods_of_chart(node, kafka, "single") as single:
        outcome = updated(single, single.surge, tmp_path)
        assert len(single.former) == len(single.pods) == 1
        (before,) = single.former
        assert "share-groups-off" not in before.container("proxy").output(), "it serves until it ends"
        assert_in_order(single, outcome)
