"""A small client concurrently with requests of every API, one version of each: the largest ones, and endless small
ones.

`tests/run tests/long/bystander_small.py -s`: over ten minutes on a machine that does nothing else. Next to other tests
it measures those, so tests/run does not contain it; there the longest stretch of each handler is counted in
instructions
(tests/views/apis/test_large_requests.py), slices by a separate clock (tests/loop/test_slices.py), and small requests in
one loop iteration by a scripted clock (tests/forwarding/test_small_requests.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice

import pytest
from kafka_share_proxy.forwarding.dispatch.routes import Kind
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.values import Address

from tests.support.brokers import OLD, Running
from tests.support.bystander import BUSY, World, at_broker
from tests.support.hostile import Hostile, looked_into, requests, small

pytestmark = pytest.mark.broker

ATTEMPTS = 10
"""Maximum number of attempts, of which the best counts: work that is not cut into slices fails each time."""
SECONDS = 0.5
"""How long one kind of request is sent at least."""
SHAPES_MAX = 16
PIPELINING = 10
"""Connections that send small requests without end."""
PIPELINED_S = 0.8
SETTINGS = {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}
ROUTES = looked_into()


@pytest.fixture(scope="module")
def kafka(running: Running) -> Cluster:
    return running.cluster(OLD)


@pytest.fixture(scope="module")
def world(running: Running, kafka: Cluster) -> World:
    return World.around(running.front(kafka.bootstrap, SETTINGS))


def largest(world: World, key: int) -> Iterator[Hostile]:
    """Every shape at the size that is served at most, some at the size that is looked into at most.

    Requests at the limit of elements are counted in tests/views/apis/test_large_requests.py: their thousands of
    partitions keep a small broker of 3.9.1 busy for minutes.
    """
    route = ROUTES[key]
    shapes = list(requests(key, route.version, world.names, Limits().served_request_bytes))
    yield from shapes[:: len(shapes) // SHAPES_MAX + 1]
    if route.kind is not Kind.LOCAL:
        yield from islice(requests(key, route.version, world.names, Limits().inspected_request_bytes), 0, 3, 2)


@pytest.mark.parametrize("key", ROUTES, ids=registry.API_KEYS.__getitem__)
def test_the_largest_requests_keep_no_other_client_waiting(world: World, key: int) -> None:
    shapes = list(largest(world, key))
    if not shapes:
        assert registry.API_KEYS[key] == "SaslHandshake", "a request without arrays and tags cannot be large"
        return
    measured = world.beside(shapes, ATTEMPTS, SECONDS, BUSY)
    print(f"{registry.API_KEYS[key]:28s} v{ROUTES[key].version:<2d} {measured}", file=sys.stderr)
    assert measured.is_fine, f"{measured}\n{world.front.output()}"


@pytest.mark.parametrize("key", ROUTES, ids=registry.API_KEYS.__getitem__)
def test_small_pipelined_requests_keep_no_other_client_waiting(kafka: Cluster, world: World, key: int) -> None:
    """Or not twice as long as the same requests do at the broker."""
    for request in small(key, min(ROUTES[key].version, world.versions.get(key, 0))):
        measured = world.beside_pipelined(request, PIPELINING, ATTEMPTS, PIPELINED_S, BUSY)
        print(f"{registry.API_KEYS[key]:28s} {request.shape} {measured}", file=sys.stderr)
        if not measured.is_fine:
            direct = at_broker(Address("127.0.0.1", kafka.nodes[0].port), request, PIPELINING, PIPELINED_S)
            report = f"{measured}\n{direct}\n{world.front.output()}"
            assert not measured.trouble, report
            assert not direct.trouble, report
            assert measured.percentile_s(0.99) < 2 * direct.percentile_s(0.99), report
