"""Items 21 and 59: a cluster and a proxy that allow two members and two share sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_share_proxy.localkafka.cluster import Cluster
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import TIGHT, Running
from tests.support.raw import until
from tests.support.worlds import World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480), pytest.mark.xdist_group("quick")]


@pytest.fixture(scope="module", params=["native", "proxy"])
def bootstrap(request: pytest.FixtureRequest, running: Running) -> str:
    """The native cluster lives for this file only."""
    if request.param == "native":
        return running.native(properties=TIGHT).bootstrap
    kafka: Cluster = request.getfixturevalue("kafka_39")
    return running.front(
        kafka.bootstrap, {"commits": {"state": "memory"}, "share_groups": {"state": "memory", "broker": TIGHT}}
    ).bootstrap


@pytest.fixture
def w(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World("tight", bootstrap, request.node.name[:24].replace("[", "-").strip("]"))
    yield world
    world.close()


def test_21_share_sessions(w: World) -> None:
    """A third session waits its time and is refused; it opens once a connection of the others has closed."""
    t = w.topic()
    g = w.group()
    a, b, c = w.member(g, topics=[t]), w.member(g, "B", topics=[t]), w.member(g, "C")
    for member in (a, b):
        assert member.fetch(t, wait_ms=0).error == 0
    response = c.fetch(t, wait_ms=1000)
    assert (response.error, response.lock_ms) == (133, 0)
    assert 0.8 < response.took_s < 8, response.took_s
    a.disconnect()
    until(lambda: c.fetch(t, wait_ms=100).error == 0, "a place for the third session")
    b.disconnect()
    c.disconnect()


def test_59_members(w: World) -> None:
    """A third member is refused; it may join once another has left."""
    t = w.topic()
    g = w.group()
    a, b, c = w.member(g), w.member(g, "B"), w.member(g, "C")
    for member in (a, b):
        assert member.heartbeat(0, topics=[t.name]).error_code == 0
    assert c.heartbeat(0, topics=[t.name], follow=False).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert b.heartbeat(0, topics=[t.name]).error_code == 0
    assert a.heartbeat(-1, follow=False).error_code == 0
    assert c.heartbeat(0, topics=[t.name]).error_code == 0
