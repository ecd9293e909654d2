"""Loads of members while partitions are balanced between them."""

from __future__ import annotations

import math

from kafka_share_proxy.consumer.assignors.member_loads import MemberLoads

from tests.consumer.assignors.groups import member, places, shown


def member_loads(*weights: float, names: str = "xy") -> MemberLoads:
    partitions = dict(zip(places(" ".join(f"a{n}" for n in range(len(weights)))), weights, strict=True))
    return MemberLoads(names, {name: member("a") for name in names}, partitions)


def test_free_partitions_go_heaviest_first_to_the_lightest_member() -> None:
    loads = member_loads(3, 5, 4, 1)
    loads.distribute()
    assert shown(loads.assigned()) == {"x": "a1 a3", "y": "a0 a2"}
    assert (loads.heaviest, loads.lightest) == (7, 6)


def test_a_member_above_the_limit_frees_the_lightest_partition_that_suffices() -> None:
    loads = member_loads(1, 2, 3, 8)
    for each in places("a0 a1 a2 a3"):
        loads.give("x", each)
    loads.shed(12)
    assert shown(loads.assigned()) == {"x": "a0 a2 a3", "y": ""}
    loads.shed(4)
    assert shown(loads.assigned()) == {"x": "a0 a2", "y": ""}


def test_with_a_floor_light_partitions_are_freed_as_far_as_they_suffice() -> None:
    loads = member_loads(1, 2, 3, 8)
    for each in places("a0 a1 a2 a3"):
        loads.give("x", each)
    loads.shed(11, floor=10)
    assert shown(loads.assigned()) == {"x": "a0 a1 a3", "y": ""}
    loads.shed(9, floor=8)
    assert shown(loads.assigned()) == {"x": "a0 a3", "y": ""}


def test_a_swap_balances_what_no_move_can() -> None:
    loads = member_loads(5, 4, 3, 2, names="xy")
    for name, mine in (("x", "a0 a1"), ("y", "a2 a3")):
        for each in places(mine):
            loads.give(name, each)
    assert loads.balance(7, 7)
    assert (loads.heaviest, loads.lightest) == (7, 7)


def test_a_balance_that_cannot_be_reached_is_reported() -> None:
    loads = member_loads(9, 1)
    loads.distribute()
    assert not loads.balance(5, 5)
    assert shown(loads.assigned()) == {"x": "a0", "y": "a1"}
    assert loads.balance(math.inf, 0)
