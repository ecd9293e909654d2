"""Kafka 3.9.1 on three nodes: share groups are served by the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kafka_share_proxy.localkafka.addresses import free_ports
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.localkafka.front import Front
from kafka_share_proxy.sharegroups.state import state_records

from tests.stock import restarts, three_nodes
from tests.support.brokers import Running
from tests.support.raw import Raw
from tests.support.worlds import ACCEPT, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

Fresh = Callable[[str], str]
AS_IT_COMES: dict[str, Any] = {"share_groups": {"serve": "upstream"}, "commits": {"serve": False}}
"""Settings of a proxy in addition to one that serves both."""


@pytest.fixture(scope="module")
def kafka(kafka_39_three: Cluster) -> Cluster:
    return kafka_39_three


@pytest.fixture(scope="module")
def front(running: Running, kafka: Cluster) -> Front:
    return running.front(kafka.bootstrap)


@pytest.fixture
def w(kafka: Cluster, front: Front, fresh: Fresh) -> Iterator[World]:
    world = World("proxy", front.bootstrap, fresh("w")[-12:])
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


def state_leader(kafka: Cluster, group: str) -> int:
    """The node that leads the partition with the group's state."""
    with Raw(kafka.bootstrap) as raw:
        topic = raw.topic(state_records.TOPIC)
    assert topic is not None
    return topic.leaders[state_records.state_partition(group)]


def test_125_a_node_goes_and_returns(w: World, kafka: Cluster, fresh: Fresh) -> None:
    """Items 100 to 102 and 125 as on a native cluster (test_three_nodes_43.py)."""
    restarts.groups_survive_a_node(w, kafka, fresh("topic"), lambda group, _topic: {state_leader(kafka, group)})


def test_leader_killed_under_load(kafka: Cluster, front: Front, fresh: Fresh) -> None:
    """No acknowledged record is lost, and no client dials a broker; the one that dies has the group's state as well."""
    three_nodes.nothing_is_lost_when_a_leader_dies(kafka, front, fresh("topic"), partial(state_leader, kafka))


def test_listeners_follow_the_brokers(running: Running, kafka: Cluster) -> None:
    """A broker that stops and returns loses its listener and gets it back."""
    settings = AS_IT_COMES | {
        "upstream": {"bootstrap": kafka.bootstrap, "metadata_interval_s": 1},
        "vanished_broker_grace_s": 2,
    }
    three_nodes.listeners_follow_the_brokers(kafka, running.front(kafka.bootstrap, settings))


def test_first_bootstrap_servers_are_dead(running: Running, kafka: Cluster) -> None:
    """One that refuses and one that never responds do not keep clients from the third."""
    (refused,) = free_ports(1)
    upstream = f"127.0.0.1:{refused},192.0.2.1:9092,{kafka.nodes[0].address}"
    with Raw(running.front(upstream, AS_IT_COMES).bootstrap) as raw:
        assert sorted(raw.brokers()) == [1, 2, 3]


def test_lag_of_logs_that_other_brokers_lead(w: World) -> None:
    """The coordinator's listener returns the lag of every partition, whichever broker leads it."""
    topic = w.topic(assignments={0: [1], 1: [2], 2: [3]})
    group = w.group()
    for partition in topic.leaders:
        w.raw.produce(topic, 4, partition=partition)
        member = w.member(group, f"M{partition}", node=topic.leaders[partition])
        member.take((topic, partition), epoch=0)
        member.acknowledge((topic, partition, 0, partition, ACCEPT))
    response = w.raw.send_request(
        "DescribeShareGroupOffsets", 1, on=w.raw.on_coordinator(group), groups=[{"group_id": group, "topics": None}]
    )
    lags = {part.partition_index: (part.error_code, part.lag) for part in response.groups[0].topics[0].partitions}
    assert lags == {0: (0, 3), 1: (0, 2), 2: (0, 1)}
