"""A small client concurrently with the largest requests of every kind: every shape and version, at the default limits.

`tests/run tests/long/bystander.py -s`, about an hour. `tests/long/bystander_small.py` is its short form.
"""

from __future__ import annotations

import sys

import pytest
from kafka_share_proxy.forwarding.dispatch.routes import Kind
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.definitions import registry

from tests.support.brokers import OLD, Running
from tests.support.bystander import World
from tests.support.hostile import every_route, requests

pytestmark = pytest.mark.broker

ATTEMPTS = 3
SECONDS = 0.5
ROUTES = every_route()


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def world(running: Running, kafka: Cluster) -> World:
    return World.around(
        running.front(kafka.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}})
    )


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{registry.API_KEYS[route.key]}-{route.version}")
@pytest.mark.parametrize("limit", ["served_request_bytes", "inspected_request_bytes"])
def test_the_largest_requests_keep_no_other_client_waiting(world: World, route, limit: str) -> None:  # type: ignore[no-untyped-def]  # parameters
    if limit == "inspected_request_bytes" and route.kind is Kind.LOCAL:
        return
    for shape in requests(route.key, route.version, world.names, getattr(Limits(), limit)):
        measured = world.beside([shape], ATTEMPTS, SECONDS)
        name = f"{registry.API_KEYS[route.key]} v{route.version} {shape.shape}"
        print(f"{name:80s} {measured}", file=sys.stderr)
        assert measured.is_fine, f"{name}: {measured}\n{world.front.output()}"
