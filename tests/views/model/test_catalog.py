"""Known views, by id and by name."""

from __future__ import annotations

from dataclasses import replace

from kafka_share_proxy.views.model.catalog import Binding, View, ViewCatalog
from kafka_share_proxy.views.model.names import ViewName
from kafka_share_proxy.views.model.plans import Plan
from kafka_share_proxy.views.model.slots import EvenCut

V1, V2, BASE = b"v" * 16, b"w" * 16, b"b" * 16
VIEW = View(name=ViewName("r", 4, "orders"), topic_id=V1, base_id=BASE, base_partitions=3, cut=EvenCut(4))


def test_a_view_is_found_by_id_and_by_name() -> None:
    """And nothing else is."""
    catalog = ViewCatalog()
    catalog.learn(VIEW)
    assert catalog.view(V1) is catalog.by_name("__view.r4.orders") is VIEW
    assert catalog.view(BASE) is None
    assert catalog.by_name("orders") is None
    assert list(catalog) == [VIEW]


def test_partitions_are_counted_base_partition_by_base_partition() -> None:
    """View partition p*R + r is slot r of base partition p, so growth of the base moves nothing."""
    assert VIEW.partitions == 12
    assert [VIEW.place(partition) for partition in (0, 3, 4, 11)] == [(0, 0), (0, 3), (1, 0), (2, 3)]


def test_a_recreated_view_replaces_the_old_one() -> None:
    """The old id is no view any longer."""
    catalog = ViewCatalog()
    catalog.learn(VIEW)
    catalog.learn(replace(VIEW, topic_id=V2))
    assert catalog.view(V1) is None
    assert catalog.view(V2) is catalog.by_name("__view.r4.orders")
    assert len(catalog) == 1


def test_a_forgotten_view_is_known_by_nothing() -> None:
    """Forgetting it twice is harmless."""
    catalog = ViewCatalog()
    catalog.learn(VIEW)
    catalog.forget("__view.r4.orders")
    catalog.forget("__view.r4.orders")
    assert catalog.view(V1) is catalog.by_name("__view.r4.orders") is None


def test_the_first_view_and_the_end_of_the_last_one_are_reported_immediately() -> None:
    """The first one is read from the topic or made here."""
    reported: list[bool] = []
    catalog = ViewCatalog()
    catalog.on_change(lambda: reported.append(catalog.is_empty))
    catalog.learn(VIEW)
    catalog.bind("__view.r4.orders", Binding(V1, BASE))
    catalog.learn(VIEW)
    catalog.forget("__view.r4.orders")
    assert reported == [False]
    catalog.bind("__view.r4.orders", None)
    assert reported == [False, True]
    catalog.bind("__view.r4.orders", Binding(V1, BASE))
    catalog.bind("__view.r4.others", Binding(V2, BASE))
    assert reported == [False, True, False]


def test_an_id_is_plain_only_when_confirmed() -> None:
    """An id without information is neither."""
    catalog = ViewCatalog()
    assert not catalog.is_plain(BASE)
    catalog.learn_plain(BASE)
    assert catalog.is_plain(BASE)
    assert not catalog.is_plain(V1)


def test_plain_ids_are_bounded_and_the_oldest_is_evicted_first() -> None:
    """An evicted id is looked up again, which is harmless."""
    catalog = ViewCatalog(plain_max=2)
    for topic_id in (b"1" * 16, b"2" * 16, b"3" * 16):
        catalog.learn_plain(topic_id)
    assert [catalog.is_plain(bytes([n]) * 16) for n in b"123"] == [False, True, True]


def test_a_binding_is_kept_until_it_is_deleted() -> None:
    """By the view's name: of two topics of one name only the later one counts."""
    catalog = ViewCatalog()
    catalog.bind("__view.r4.orders", Binding(V1, BASE))
    assert catalog.binding("__view.r4.orders") == Binding(V1, BASE)
    assert catalog.bound == ("__view.r4.orders",)
    catalog.bind("__view.r4.orders", None)
    assert catalog.binding("__view.r4.orders") is None


def test_a_plan_never_changes_under_its_name() -> None:
    """The first one stays; the same again is the same."""
    catalog = ViewCatalog()
    plan = Plan("hot", (0, 10))
    assert catalog.add_plan(plan)
    assert catalog.add_plan(Plan("hot", (0, 10)))
    assert not catalog.add_plan(Plan("hot", (0, 11)))
    assert catalog.plan("hot") == plan
    assert catalog.plans == (plan,)


def test_the_latest_weights_of_a_plan_count_and_its_ranges_stay() -> None:
    catalog = ViewCatalog()
    for weights in ((), (0.5, 0.5), (0.25, 0.75), ()):
        assert catalog.add_plan(Plan("hot", (0, 10), weights=weights))
    assert not catalog.add_plan(Plan("hot", (0, 11), weights=(0.9, 0.1)))
    assert catalog.plans == (Plan("hot", (0, 10)),)
    assert catalog.plans[0].weights == (0.25, 0.75)
