"""Requests about views as requests about their bases: which can be combined, and which cannot."""

from __future__ import annotations

from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.views.apis.base_queries import Query, in_rounds, make_ready, upstream_partition
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_ports import ViewWorld


def test_equal_queries_are_sent_once_and_different_ones_separately():
    """The number of rounds is minimal."""
    one, two, other = Query("t", 0, (1,)), Query("t", 0, (2,)), Query("t", 1, (1,))
    assert in_rounds([one, one, other, two, one]) == [{("t", 0): one, ("t", 1): other}, {("t", 0): two}]
    assert in_rounds([]) == []


def test_partition_of_a_view_is_in_its_base():
    world = ViewWorld()
    world.topic("t", (1, 1))
    world.view("__view.r4.t")
    assert upstream_partition(world.views, "__view.r4.t", 7) == ("t", 1)
    assert upstream_partition(world.views, "__view.r4.t", 8) is None
    assert upstream_partition(world.views, "t", 9) == ("t", 9)


def test_views_that_are_not_known_are_made_ready_first():
    """Or there is a reason."""
    world = ViewWorld()
    world.topic("t")
    world.view("__view.r4.t")
    world.views.catalog.forget("__view.r4.t")
    names = {"__view.r4.t": [0], "__view.r2.nothing": [0], "t": [0]}
    task = Task(make_ready(world.connect(), world.views, names), lambda _: None)
    task.start()
    assert task.value == {"__view.r2.nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.views.catalog.by_name("__view.r4.t") is not None


def test_a_view_that_is_replaced_while_another_one_is_made_ready_is_made_ready_again(monkeypatch):
    """Otherwise its query would be sent to its own topic, which is empty."""
    world = ViewWorld()
    for base in ("t", "u"):
        world.topic(base)
        world.view(f"__view.r4.{base}")
    catalog, ensure, ensured = world.views.catalog, world.creation.ensure, []
    catalog.forget("__view.r4.u")

    async def replacing(connection, topics, work):
        topics = list(topics)
        ensured.append(topics)
        errors = await ensure(connection, topics, work)
        if len(ensured) == 1:
            catalog.forget("__view.r4.t")
        return errors

    monkeypatch.setattr(world.creation, "ensure", replacing)
    task = Task(make_ready(world.connect(), world.views, {"__view.r4.t": [0], "__view.r4.u": [0]}), lambda _: None)
    task.start()
    assert (task.value, ensured) == ({}, [["__view.r4.u"], ["__view.r4.t"]])
    assert upstream_partition(world.views, "__view.r4.t", 0) == ("t", 0)


def test_a_view_that_is_not_in_the_catalog_is_never_queried_as_a_plain_topic():
    world = ViewWorld()
    world.topic("t")
    world.view("__view.r4.t")
    world.views.catalog.forget("__view.r4.t")
    assert upstream_partition(world.views, "__view.r4.t", 0) is None
