"""Coordinators by the hash of the key."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.coordinators import CoordinatorKind, Coordinators, slot_of


def test_slots_are_those_of_java() -> None:
    assert [slot_of(each) for each in ("", "a", "group", "\U0001f600")] == [0, 47, 47, 49]


def test_keys_follow_the_nodes_that_are_up() -> None:
    coordinators, moves = Coordinators(3), []
    coordinators.on_change(lambda: moves.append(1))
    first = coordinators.node_of(CoordinatorKind.GROUP, "g")
    coordinators.set_up({1, 2, 3} - {first})
    assert coordinators.node_of(CoordinatorKind.GROUP, "g") == first % 3 + 1
    coordinators.set_up(set())
    assert coordinators.node_of(CoordinatorKind.GROUP, "g") == -1
    assert len(moves) == 2
