"""Assignor `weighted-sticky`: loads of members, stickiness, and the fall-back to counting."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from kafka_share_proxy.consumer.assignors.interface import Assigned, SlotWeights
from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor
from kafka_share_proxy.consumer.assignors.weighted_sticky_assignor import SLACK, WeightedStickyAssignor
from kafka_share_proxy.consumer.groups.group_protocol import GroupSubscription
from kafka_share_proxy.wire.values import TopicPartition

from tests.consumer.assignors.groups import member, shown

ASSIGNOR = WeightedStickyAssignor()
ROUNDS_MAX = 4
"""Rebalances until no partition is withheld: the first one, its releases, and one more of each."""


def loads(assigned: Assigned, weights: Sequence[float]) -> list[float]:
    return [sum(weights[each.partition % len(weights)] for each in mine) for mine in assigned.values()]


def optimum(weights: Sequence[float], members: int) -> float:
    """Return the smallest possible load of the heaviest member, by trying everything."""
    return min(
        max(sum(each for each, owner in zip(weights, owners, strict=True) if owner == one) for one in range(members))
        for owners in product(range(members), repeat=len(weights))
    )


def settled(
    group: Mapping[str, GroupSubscription], counts: Mapping[str, int], weights: SlotWeights, generation: int = 0
) -> tuple[Assigned, int]:
    """Rebalance as cooperative members do until the assignment stays. Return it and the number of rebalances."""
    now = dict(group)
    for rounds in range(1, ROUNDS_MAX + 1):
        assigned = ASSIGNOR.assign(counts, now, None, weights)
        owned = {name: set(each.owned) for name, each in now.items()}
        releasing = any(owned[name] - set(mine) for name, mine in assigned.items())
        now = {
            name: GroupSubscription(topics=each.topics, owned=tuple(assigned[name]), generation=generation + rounds)
            for name, each in now.items()
        }
        if not releasing:
            return assigned, rounds
    raise AssertionError(f"partitions are still released after {ROUNDS_MAX} rebalances")


def had(assigned: Assigned, *names: str, topics: str = "a") -> dict[str, GroupSubscription]:
    return {
        name: GroupSubscription(topics=tuple(topics), owned=tuple(assigned.get(name, ())), generation=5)
        for name in names
    }


def test_partitions_are_balanced_by_the_weights_of_their_slots() -> None:
    group = {"m0": member("a"), "m1": member("a")}
    weights = (0.5, 0.1, 0.1, 0.1, 0.1, 0.1)
    assigned = ASSIGNOR.assign({"a": 6}, group, None, {"a": weights})
    assert shown(assigned) == {"m0": "a0", "m1": "a1 a2 a3 a4 a5"}


def test_the_weights_hold_for_the_slots_of_each_base_partition() -> None:
    group = {"m0": member("a"), "m1": member("a")}
    assigned = ASSIGNOR.assign({"a": 4}, group, None, {"a": (3.0, 1.0)})
    assert shown(assigned) == {"m0": "a0 a1", "m1": "a2 a3"}


@pytest.mark.parametrize("seed", range(40))
def test_the_heaviest_member_is_close_to_the_optimum(seed: int) -> None:
    """At most 7/6 of it, which is also the proven bound of heaviest-first for two members."""
    draw = random.Random(seed)
    weights = tuple(draw.paretovariate(1.1) for _ in range(8))
    names = [f"m{n}" for n in range(draw.choice((2, 3)))]
    assigned = ASSIGNOR.assign({"a": 8}, {name: member("a") for name in names}, None, {"a": weights})
    assert sorted(each for mine in assigned.values() for each in mine) == [TopicPartition("a", n) for n in range(8)]
    assert max(loads(assigned, weights)) <= optimum(weights, len(names)) * 7 / 6 + 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_the_heaviest_member_is_within_the_mean_plus_one_partition(seed: int) -> None:
    draw = random.Random(seed)
    slots, bases, names = draw.randint(2, 64), draw.randint(1, 8), [f"m{n}" for n in range(draw.randint(2, 20))]
    weights = tuple(draw.paretovariate(1.2) for _ in range(slots))
    assigned = ASSIGNOR.assign({"a": slots * bases}, {name: member("a") for name in names}, None, {"a": weights})
    member_loads = loads(assigned, weights)
    assert max(member_loads) <= sum(member_loads) / len(names) + max(weights) + 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_members_come_and_go_with_few_moves_and_a_balance_that_stays(seed: int) -> None:
    """After each change the balance is within the slack of a new group's, and the next rebalance moves nothing."""
    draw = random.Random(seed)
    slots, bases = draw.randint(4, 32), draw.randint(1, 4)
    weights = tuple(draw.paretovariate(1.2) for _ in range(slots))
    counts, by_slot = {"a": slots * bases}, {"a": weights}
    names = [f"m{n}" for n in range(draw.randint(2, 8))]
    assigned: Assigned = {}
    for _ in range(6):
        if len(names) > 2 and draw.random() < 0.5:
            names.remove(draw.choice(names))
        else:
            names.append(f"n{draw.random()}")
        assigned, _ = settled(had(assigned, *names), counts, by_slot)
        fresh = ASSIGNOR.assign(counts, {name: member("a") for name in names}, None, by_slot)
        mean = sum(weights) * bases / len(names)
        assert max(loads(assigned, weights)) <= max(loads(fresh, weights)) * SLACK + mean / 500
        assert settled(had(assigned, *names), counts, by_slot) == (assigned, 1)


@pytest.mark.parametrize("seed", [*range(40), 364])
def test_rebalances_end_also_where_members_subscribe_to_different_topics(seed: int) -> None:
    """Seed 364 rebalanced for ever with a first version, which might revoke as much in each rebalance."""
    draw = random.Random(seed)
    slots, bases = draw.randint(2, 16), draw.randint(1, 3)
    counts = {"a": slots * bases, "b": draw.randint(1, 6), "c": slots}
    light = tuple(float(draw.choice((0, 1, 5))) for _ in range(slots - 1))
    weights = {"a": tuple(draw.paretovariate(1.2) for _ in range(slots)), "c": (*light, 1.0)}
    topics: dict[str, tuple[str, ...]] = {}
    names = [f"m{n}" for n in range(draw.randint(1, 8))]
    assigned: Assigned = {}
    for _ in range(5):
        if len(names) > 2 and draw.random() < 0.5:
            names.remove(draw.choice(names))
        else:
            names.append(f"n{draw.random()}")
        for name in names:
            topics.setdefault(name, tuple(sorted(draw.sample("abc", draw.randint(1, 3)))))
        group = {name: each for name in names for each in had(assigned, name, topics="".join(topics[name])).values()}
        assigned, _ = settled(group, counts, weights)
        partitions = sorted(each for mine in assigned.values() for each in mine)
        expected = {topic for name in names for topic in topics[name]}
        assert partitions == sorted(TopicPartition(topic, n) for topic in expected for n in range(counts[topic]))
        assert all(each.topic in topics[name] for name, mine in assigned.items() for each in mine)


def test_a_balanced_group_keeps_its_partitions() -> None:
    """Although a new group would get others."""
    group = {"m0": member("a", "a1 a2 a3", 3), "m1": member("a", "a0", 3)}
    assigned = ASSIGNOR.assign({"a": 4}, group, None, {"a": (3.0, 1.0, 1.0, 1.0)})
    assert shown(assigned) == {"m0": "a1 a2 a3", "m1": "a0"}


def test_a_new_member_gets_a_partition_although_the_heaviest_has_its_fair_share() -> None:
    group = had({"m0": [TopicPartition("a", 0)], "m1": [TopicPartition("a", n) for n in (1, 2, 3)]}, "m0", "m1", "m2")
    assigned, _ = settled(group, {"a": 4}, {"a": (9.0, 1.0, 1.0, 1.0)})
    assert all(assigned.values())


def test_a_new_member_takes_from_the_others_and_they_exchange_nothing() -> None:
    """Although the new balance is exact, and lighter partitions must go as well as heavy ones."""
    had_three = {"m0": "a2 a8 ab ae", "m1": "a0 a6 a9 ac af", "m2": "a1 a3 a4 a5 a7 aa ad"}
    before = {
        name: [TopicPartition("a", int(each[1:], 16)) for each in mine.split()] for name, mine in had_three.items()
    }
    weights = (0.2, 0.05) * 4
    assigned, _ = settled(had(before, "m0", "m1", "m2", "m3"), {"a": 16}, {"a": weights})
    assert [round(each, 6) for each in loads(assigned, weights)] == [0.5] * 4
    assert sum(len(set(before[name]) - set(assigned[name])) for name in before) <= 7


def test_a_partition_that_changes_hands_waits_for_its_release() -> None:
    group = {"m0": member("a", "a0 a1 a2 a3", 3), "m1": member("a")}
    assigned = ASSIGNOR.assign({"a": 4}, group, None, {"a": (3.0, 1.0, 1.0, 1.0)})
    assert len(assigned["m0"]) < 4
    assert assigned["m1"] == []
    assert settled(group, {"a": 4}, {"a": (3.0, 1.0, 1.0, 1.0)}, 3)[1] == 2


def test_the_result_does_not_depend_on_the_order_of_members_or_topics() -> None:
    weights = {"a": (5.0, 1.0, 2.0), "b": (1.0, 1.0, 4.0)}
    group = {f"m{n}": member("ab") for n in range(4)}
    turned = dict(reversed(group.items()))
    first = ASSIGNOR.assign({"a": 6, "b": 3}, group, None, weights)
    assert ASSIGNOR.assign({"b": 3, "a": 6}, turned, None, dict(reversed(weights.items()))) == first


def test_static_members_that_return_with_other_member_ids_get_the_same_partitions() -> None:
    weights = {"a": (5.0, 1.0, 2.0)}
    first = ASSIGNOR.assign(
        {"a": 6}, {"x": member("a", instance_id="i0"), "y": member("a", instance_id="i1")}, None, weights
    )
    other = ASSIGNOR.assign(
        {"a": 6}, {"z": member("a", instance_id="i0"), "b": member("a", instance_id="i1")}, None, weights
    )
    assert (other["z"], other["b"]) == (first["x"], first["y"])


def test_each_member_gets_only_topics_that_it_subscribes_to() -> None:
    group = {"m0": member("a"), "m1": member("ab"), "m2": member("x")}
    assigned = ASSIGNOR.assign({"a": 2, "b": 2}, group, None, {"a": (1.0, 1.0)})
    assert {name: {each.topic for each in mine} for name, mine in assigned.items()} == {
        "m0": {"a"},
        "m1": {"b"},
        "m2": set(),
    }


@pytest.mark.parametrize(
    "weights",
    [None, {}, {"z": (1.0, 2.0)}, {"a": ()}, {"a": (1.0, 2.0, 3.0, 4.0, 5.0)}, {"a": (0.0, 0.0)}, {"a": (1.0, -2.0)},
     {"a": (1.0, float("nan"))}, {"a": (1.0, float("inf"))}],
)  # fmt: skip
def test_partitions_are_counted_where_weights_are_unknown_or_do_not_fit(weights: SlotWeights | None) -> None:
    """The result is that of cooperative-sticky."""
    group = {"m0": member("ab", "a0 a1 a2 a3 b0", 3), "m1": member("ab"), "m2": member("a")}
    counts = {"a": 4, "b": 3}
    assert ASSIGNOR.assign(counts, group, None, weights) == CooperativeStickyAssignor().assign(counts, group)


def test_a_plain_topic_counts_as_one_per_partition_next_to_a_view() -> None:
    group = {"m0": member("ab"), "m1": member("ab")}
    assigned = ASSIGNOR.assign({"a": 4, "b": 4}, group, None, {"a": (10.0, 2.0, 2.0, 2.0)})
    assert [sum((2.5, 0.5, 0.5, 0.5)[n] if topic == "a" else 1 for topic, n in mine) for mine in assigned.values()] == [
        4,
        4,
    ]


def test_a_slot_without_load_is_assigned() -> None:
    assigned = ASSIGNOR.assign({"a": 3}, {"m0": member("a")}, None, {"a": (1.0, 0.0, 0.0)})
    assert shown(assigned) == {"m0": "a0 a1 a2"}


def test_the_user_data_are_empty() -> None:
    """The subscription contains the member's partitions."""
    assert ASSIGNOR.user_data(frozenset({TopicPartition("a", 0)}), 3) is None


@pytest.mark.parametrize(("members", "partitions"), [(300, 20_000), (1000, 8_000)])
def test_a_large_group_is_assigned_within_seconds(members: int, partitions: int) -> None:
    draw = random.Random(7)
    weights = {"a": tuple(draw.paretovariate(1.2) for _ in range(1000))}
    group = {f"m{n}": member("a") for n in range(members)}
    begin = time.process_time()
    assigned, _ = settled(group, {"a": partitions}, weights)
    settled(had(assigned, *(name for name in group if name != "m7")), {"a": partitions}, weights)
    assert time.process_time() - begin < 10
