"""Names of views, and impossible names."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views.model.names import BadViewName, ViewName, check_plan_id, is_view, parse


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("__view.r2.orders", ViewName("r", 2, "orders")),
        ("__view.r1024.a.b-c_d", ViewName("r", 1024, "a.b-c_d")),
        ("__view.s8.orders", ViewName("s", 8, "orders")),
        ("__view.phot_keys-2.orders", ViewName("p", "hot_keys-2", "orders")),
        ("__view.p16.orders", ViewName("p", "16", "orders")),
        ("__view.r4.r4.orders", ViewName("r", 4, "r4.orders")),
    ],
)
def test_a_name_says_kind_slots_and_base_and_is_made_of_them_again(topic: str, name: ViewName) -> None:
    """Reading and writing are each other's inverse."""
    assert parse(topic) == name
    assert name.topic == topic


@pytest.mark.parametrize("topic", ["orders", "", "__view", "_view.r2.orders", "__proxy_views", "x__view.r2.orders"])
def test_any_other_topic_is_no_view(topic: str) -> None:
    """Only the prefix is ours."""
    assert parse(topic) is None
    assert not is_view(topic)


@pytest.mark.parametrize(
    "topic",
    [
        "__view.",
        "__view.r.orders",
        "__view.r0.orders",
        "__view.r1.orders",
        "__view.r1025.orders",
        "__view.r99999999999999999999.orders",
        "__view.r04.orders",
        "__view.r-4.orders",
        "__view.r\u0664.orders",
        "__view.q4.orders",
        "__view.R4.orders",
        "__view.r4.",
        "__view.r4..",
        "__view.r4...",
        "__view.r4.or ders",
        "__view.r4.orders\n",
        "__view.r4.__view.r2.orders",
        "__view.s2.__view.anything",
        "__view.p.orders",
        "__view.pa/b.orders",
        "__view.p" + "x" * 65 + ".orders",
        "__view.r4." + "x" * 240,
    ],
)
def test_an_invalid_name_with_the_prefix_of_views_is_refused(topic: str) -> None:
    """The client gets an error; it never becomes an ordinary topic."""
    assert is_view(topic)
    with pytest.raises(BadViewName):
        parse(topic)


def test_the_longest_name_is_a_topics_longest() -> None:
    """249 characters, prefix included."""
    assert parse("__view.r4." + "x" * 239) == ViewName("r", 4, "x" * 239)


def test_a_lower_bound_on_slots_holds() -> None:
    """The setting `views.slots_max`."""
    assert parse("__view.r8.t", slots_max=8) == ViewName("r", 8, "t")
    with pytest.raises(BadViewName, match="2 to 8 slots"):
        parse("__view.s9.t", slots_max=8)


def test_only_a_plan_has_a_plans_id() -> None:
    """`number` is its id there."""
    assert ViewName("p", "7", "t").plan == "7"
    assert ViewName("r", 7, "t").plan is None


@pytest.mark.parametrize("plan", ["", "a.b", "a b", "x" * 65])
def test_a_plans_id_is_part_of_a_topics_name(plan: str) -> None:
    """And has no dot, otherwise the start of the base would be ambiguous."""
    with pytest.raises(BadViewName):
        check_plan_id(plan)
