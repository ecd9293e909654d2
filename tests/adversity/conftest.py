"""Two proxies of one fleet that speak TLS to each other, in front of one broker that has no share groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster

from tests.support.brokers import OLD, Running
from tests.support.fleet import Fleet, certificates


@pytest.fixture(scope="module")
def fleet_kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def two(running: Running, fleet_kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(running, fleet_kafka, certificates(tmp_path_factory.mktemp("certificates")))
    fleet.start("a", relayed=True)
    fleet.start("b", relayed=True)
    yield fleet
    for relay in fleet.relays:
        relay.__exit__(None, None, None)


@pytest.fixture
def fleet(two: Fleet) -> Iterator[Fleet]:
    for relay in two.relays:
        relay.go_on()
    two.settled("a", "b")
    yield two
    two.close_worlds()
