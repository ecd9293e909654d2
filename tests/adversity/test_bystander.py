"""No request keeps others waiting, however large: a small client beside the largest requests of every kind.

One test for each request that the proxy looks into or answers; which those are is read from the routes. Other tests
share the machine, so the bounds are wide (`bystander.BUSY`), what fails is measured again, and its best run counts: a
turn that is not cut into slices fails each time. `tests/run tests/long/bystander.py -s` does it for every version and
shape, at the default limits, with the bounds of a calm machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

import pytest
from localkafka.cluster import Cluster

from proxy.forwarding.routes import Kind
from proxy.wire import registry
from proxy.wire.values import Limits
from tests.support.brokers import OLD, Running
from tests.support.bystander import BUSY, World
from tests.support.hostile import Hostile, looked_into, requests

pytestmark = pytest.mark.broker

ATTEMPTS = 10
"""Other tests take half of the processors, and for seconds all of them, when they start brokers or compile."""
SECONDS = 0.5
"""How long one kind of request is sent at least."""
SHAPES_MAX = 16
SETTINGS = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
ROUTES = looked_into()


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def world(running: Running, kafka: Cluster) -> World:
    return World.around(running.front(kafka.bootstrap, SETTINGS))


def largest(world: World, key: int) -> Iterator[Hostile]:
    """Every shape at the size that is served at most, some at the size that is looked into at most."""
    route = ROUTES[key]
    shapes = list(requests(key, route.version, world.names, Limits().served_request_bytes))
    yield from shapes[:: len(shapes) // SHAPES_MAX + 1]
    if route.kind is not Kind.LOCAL:
        yield from islice(requests(key, route.version, world.names, Limits().inspected_request_bytes), 0, 3, 2)


@pytest.mark.parametrize("key", ROUTES, ids=registry.API_KEYS.__getitem__)
def test_the_largest_requests_keep_nobody_waiting(world: World, key: int) -> None:
    shapes = list(largest(world, key))
    if not shapes:
        assert registry.API_KEYS[key] == "SaslHandshake", "a request without arrays and tags cannot be large"
        return
    measured = world.beside(shapes, ATTEMPTS, SECONDS, BUSY)
    print(f"{registry.API_KEYS[key]:28s} v{ROUTES[key].version:<2d} {measured}", file=sys.stderr)
    assert measured.is_fine, f"{measured}\n{world.front.output()}"
