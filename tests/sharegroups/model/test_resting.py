"""Share partitions at rest: found by group, gone when taken, and small."""

from __future__ import annotations

import gc
import random
import tracemalloc

from kafka_share_proxy.sharegroups.model.coordinator import ShareCoordinator, ShareKey
from kafka_share_proxy.sharegroups.model.resting import SHORT_MAX, RestingShares
from kafka_share_proxy.sharegroups.model.settings import BrokerShareLimits

T, U = b"t" * 16, b"u" * 16
BYTES_EACH_MAX = 110
"""Bytes of one resting share partition, with its part of a group of ten: about 95, and some room for other Pythons."""


def test_what_is_put_is_taken_once():
    """It replaces the previous value; nothing is left of a group that has nothing."""
    resting = RestingShares()
    resting.put("g", T, 3, b"old")
    assert resting.get("g", T, 3) == b"old"
    resting.put("g", T, 3, b"new")
    resting.put("g", U, 0, b"u")
    resting.put("h", T, 3, b"h")
    assert len(resting) == 3
    assert resting.get("g", T, 3) == b"new"
    assert resting.get("g", T, 4) is resting.get("g", U, 16) is resting.get("nobody", T, 3) is None
    assert resting.get("g", T, -1) is None
    assert set(resting.of_group("g")) == {(T, 3), (U, 0)}
    assert set(resting.topics()) == {("g", T), ("g", U), ("h", T)}
    assert resting.take("g", T, 3) == b"new"
    assert resting.take("g", T, 3) is None
    assert resting.take("nobody", T, 3) is None
    assert resting.take("g", U, 0) == b"u"
    assert (len(resting), list(resting.of_group("g")), set(resting.topics())) == (1, [], {("h", T)})
    resting.clear()
    assert (len(resting), list(resting.topics())) == (0, [])


def test_any_mixture_is_held_as_a_table_would():
    """Values short and long, partitions of one page and of many, put and taken in any order (seeded)."""
    chance, resting, table = random.Random(5), RestingShares(), {}
    for _ in range(5_000):
        place = (chance.choice("gh"), chance.choice((T, U)), chance.choice((0, 1, 15, 16, 17, 31, 32, 1 << 20)))
        if chance.random() < 0.5:
            assert resting.take(*place) == table.pop(place, None)
        else:
            table[place] = chance.randbytes(chance.choice((1, 20, SHORT_MAX, SHORT_MAX + 1, 5000)))
            resting.put(*place, table[place])
        assert len(resting) == len(table)
        assert sorted(resting.of_group("g")) == sorted(place[1:] for place in table if place[0] == "g")
    assert {place: resting.take(*place) for place in list(table)} == table
    assert (len(resting), list(resting.topics())) == (0, [])


def test_ten_thousand_at_rest_are_small():
    """An unused share partition takes about a hundred bytes, with its tenth of the group."""
    coordinator = ShareCoordinator(BrokerShareLimits())
    topic_ids = [bytes([n]) * 16 for n in range(10)]
    gc.collect()
    tracemalloc.start()
    try:
        for group in range(1000):
            group_id = f"group-{group}"
            coordinator.add_group(group_id)
            for partition in range(10):
                key = ShareKey(group_id, topic_ids[group % 10], partition)
                coordinator.rest(key, coordinator.new_partition(key, 1000 + partition).snapshot().encode())
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert coordinator.resting == 10_000
    assert used / 10_000 < BYTES_EACH_MAX
