"""Items 1 and 51: a cluster whose share groups are switched off, directly and through a proxy that forwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.brokers import NEW, Running
from tests.support.worlds import ACCEPT, World

pytestmark = [pytest.mark.broker, pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def worlds(running: Running) -> Iterator[list[World]]:
    kafka = running.cluster(NEW, features=["share.version=0"])
    front = running.front(kafka.bootstrap, {"share_groups": {"serve": "upstream"}})
    worlds = [World("native", kafka.bootstrap, "off-native"), World("proxy", front.bootstrap, "off-proxy")]
    yield worlds
    for world in worlds:
        world.close()


def test_01_records(worlds: list[World]) -> None:
    """ShareFetch and ShareAcknowledge are unsupported, with no lock duration."""
    for w in worlds:
        t = w.topic("t1")
        member = w.member(w.group("g1", start=None))
        for response in (member.fetch(t), member.acknowledge((t, 0, 0, 0, ACCEPT), epoch=1)):
            assert (response.error, response.lock_ms) == (35, 0), w.name


def test_51_membership(worlds: list[World]) -> None:
    """A heartbeat is unsupported."""
    for w in worlds:
        t = w.topic("t51")
        response = w.member(w.group("g51", start=None)).heartbeat(0, topics=[t.name], follow=False)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION, w.name


def test_served_by_the_proxy_by_default(running: Running, worlds: list[World]) -> None:
    """By default the proxy serves share groups for a cluster that cannot."""
    upstream = ",".join(map(str, worlds[0].raw.bootstrap))
    w = World(
        "proxy",
        running.front(upstream, {"commits": {"state": "memory"}, "share_groups": {"state": "memory"}}).bootstrap,
        "off-local",
    )
    try:
        t = w.topic()
        w.raw.produce(t, 1)
        assert w.member(w.group(), topics=[t]).take(t).acquired(t) == [(0, 0, 1)]
    finally:
        w.close()
