"""Kafka 4.3.0 on three nodes: share groups are the brokers', directly and through the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front

from tests.stock import restarts, three_nodes
from tests.support.brokers import Running
from tests.support.worlds import World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

Fresh = Callable[[str], str]


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.native(nodes=3)


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap)


@pytest.fixture(params=["native", "proxy"])
def w(kafka: Cluster, front: Front, fresh: Fresh, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param, (kafka if request.param == "native" else front).bootstrap, fresh("w")[-12:])
    yield world
    world.close()


def test_02_other_nodes_name_the_leader(w: World, fresh: Fresh) -> None:
    """A node that does not lead a partition says who does."""
    three_nodes.other_nodes_name_the_leader(w, fresh("topic"))


def test_05_records_come_from_their_leaders(w: World, fresh: Fresh) -> None:
    """Each node serves the partitions it leads."""
    three_nodes.records_come_from_their_leaders(w, fresh("topic"))


def test_no_setting_of_a_broker_names_it(kafka: Cluster, front: Front) -> None:
    """Clients are shown the proxy's addresses in settings as well."""
    three_nodes.no_setting_of_a_broker_names_it(kafka, front)


@pytest.mark.long
def test_leader_killed_under_load(kafka: Cluster, front: Front, fresh: Fresh) -> None:
    """No acknowledged record is lost, and no client dials a broker."""
    three_nodes.nothing_is_lost_when_a_leader_dies(kafka, front, fresh("topic"))


def test_125_a_node_goes_and_returns(kafka: Cluster, fresh: Fresh) -> None:
    """Items 100 to 102 and 125 as a native cluster has them."""
    w = World("native", kafka.bootstrap, fresh("w")[-12:])
    try:
        restarts.groups_survive_a_node(w, kafka, fresh("topic"), restarts.native_coordinators(w.raw))
    finally:
        w.close()
