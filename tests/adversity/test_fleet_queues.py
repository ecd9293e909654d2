"""Key order and redelivery delay in a fleet: members at a proxy that does not own their group, kill -9 of the owner."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kafka_share_proxy.client.share_opening import open_share_consumer
from kafka_share_proxy.wire.records import records

from tests.client.test_share_real_brokers import EXPLICIT
from tests.stock.test_redelivery_delay import attempts, gaps
from tests.support.fleet import Fleet, acquired_again, elsewhere, far_group
from tests.support.raw import Topic
from tests.support.worlds import ACCEPT, RELEASE, World

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(480)]

DELAY_S, NAMED_S = 20.0, 1.5


def produce(world: World, topic: Topic, keys: str) -> None:
    """Append one compressed batch; each character is a key, "." is none."""
    now = int(time.time() * 1000)
    keyed = [records.Record(None if key == "." else key.encode(), b"v", timestamp=now) for key in keys]
    world.raw.append(topic, records.build_batch(0, keyed, codec=4))


def test_members_at_both_proxies_get_the_records_of_a_key_in_order(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    prefix = fresh("w")[-16:]
    a, b = fleet.world("a", prefix), fleet.world("b", prefix)
    t = a.topic()
    produce(a, t, "aba.b")
    one = a.member(far_group(fleet, a, "a", **{"share.ordering": "key"}), "one", topics=[t])
    two = elsewhere(b, one, "two")
    assert one.take(t).acquired(t) == [(0, 1, 1), (3, 3, 1)]
    assert two.fetch(t, wait_ms=300).acquired(t) == []
    assert one.acknowledge((t, 0, 1, 1, ACCEPT)).code(t) == 0
    assert two.take(t).acquired(t) == [(4, 4, 1)]
    assert one.acknowledge((t, 0, 0, 0, ACCEPT)).code(t) == 0
    assert two.take(t).acquired(t) == [(2, 2, 1)]


async def test_a_named_delay_holds_if_another_proxy_owns_the_group(fleet: Fleet, fresh: Callable[[str], str]) -> None:
    """The group itself has no delay."""
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    produce(a, t, "a")
    group = far_group(fleet, a, "a")
    servers = fleet.fronts["a"].bootstrap
    async with open_share_consumer(servers, group=group, topics=[t.name], **EXPLICIT) as one:
        waited = gaps(await attempts(one, 3, delay_s=NAMED_S))
    assert all(NAMED_S <= seconds < 5 * NAMED_S for seconds in waited), waited


def test_after_kill_9_of_the_owner_each_key_is_in_order_and_delays_go_on(
    fleet: Fleet, fresh: Callable[[str], str]
) -> None:
    a = fleet.world("a", fresh("w")[-16:])
    t = a.topic()
    produce(a, t, "aabbc")
    settings = {"share.ordering": "key", "share.redelivery.delay.ms": str(round(DELAY_S * 1000))}
    one = a.member(far_group(fleet, a, "a", **settings), "one", topics=[t])
    assert one.take(t).acquired(t) == [(0, 0, 1), (2, 2, 1), (4, 4, 1)]
    assert one.acknowledge((t, 0, 4, 4, ACCEPT)).code(t) == 0
    assert one.acknowledge((t, 0, 2, 2, RELEASE)).code(t) == 0
    released = time.monotonic()
    fleet.fronts["b"].kill()
    assert acquired_again(one, t) == [(0, 0, 1)], "only the first record of the key that does not wait"
    assert time.monotonic() - released < 0.9 * DELAY_S, "the takeover was too slow for this test"
    assert one.acknowledge((t, 0, 0, 0, ACCEPT)).code(t) == 0
    assert one.take(t).acquired(t) == [(1, 1, 1)]
    assert one.acknowledge((t, 0, 1, 1, ACCEPT)).code(t) == 0
    assert acquired_again(one, t, 2 * DELAY_S) == [(2, 2, 2)]
    assert time.monotonic() - released >= 0.9 * DELAY_S
    assert one.acknowledge((t, 0, 2, 2, ACCEPT)).code(t) == 0
    assert one.take(t).acquired(t) == [(3, 3, 1)]
    fleet.fronts["b"].start()
    fleet.settled("a", "b")
