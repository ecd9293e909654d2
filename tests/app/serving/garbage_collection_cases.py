"""Surviving objects are not walked again; garbage among them is found eventually."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator

import pytest
from kafka_share_proxy.app.serving import garbage_collection
from kafka_share_proxy.app.serving.garbage_collection import GROWTH_MAX, PORTION, FreezingCollector


class Circle:
    """Object that refers to itself: only a collection finds it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def chores() -> Iterator[list[Callable[[], object]]]:
    """A process whose garbage is kept small, and the calls due at the end of the loop iteration."""
    yield from kept_small(FreezingCollector, lambda: True)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """The same while clients are connected, and where a full walk takes too long."""
    monkeypatch.setattr(garbage_collection, "WALK_S", 0.0)
    yield from kept_small(FreezingCollector, lambda: False)


def kept_small(
    collector_class: type[FreezingCollector], is_idle: Callable[[], bool]
) -> Iterator[list[Callable[[], object]]]:
    waiting: list[Callable[[], object]] = []
    collector = collector_class(waiting.append, is_idle)
    collector.begin()
    yield waiting
    collector.end()
    gc.unfreeze()


def work_off(chores: list[Callable[[], object]]) -> None:
    while chores:
        chores.pop()()


def test_survivors_are_not_visited_again(chores: list[Callable[[], object]]) -> None:
    before = gc.get_freeze_count()
    survivors = [Circle() for _ in range(1000)]
    gc.collect()
    work_off(chores)
    assert gc.get_freeze_count() >= before + len(survivors)
    assert len(gc.get_objects(generation=2)) < len(survivors)


def test_younger_generations_freeze_nothing(chores: list[Callable[[], object]]) -> None:
    """Young objects have not shown yet that they survive."""
    gc.collect(0)
    gc.collect(1)
    assert chores == []


def test_what_became_garbage_afterwards_is_found_when_as_much_was_kept_again(
    chores: list[Callable[[], object]],
) -> None:
    lost = Circle()
    reference = weakref.ref(lost)
    gc.collect()
    work_off(chores)
    del lost
    gc.collect()
    work_off(chores)
    assert reference() is not None, "frozen: not looked at"
    survivors = [Circle() for _ in range(gc.get_freeze_count())]
    gc.collect()
    work_off(chores)
    assert reference() is None
    assert survivors


def test_survivors_are_frozen_in_portions_before_a_collection_would_visit_them(
    chores: list[Callable[[], object]],
) -> None:
    """The oldest generation stays small, however many objects live."""
    frozen = gc.get_freeze_count()
    survivors = []
    for _ in range(PORTION):
        assert chores == []
        survivors.append([Circle() for _ in range(1000)])
        gc.collect(1)
    work_off(chores)
    assert gc.get_freeze_count() >= frozen + 1000 * PORTION
    assert len(gc.get_objects(generation=2)) < 1000
    assert survivors


def test_a_walk_before_the_start_counts_towards_the_time_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spare worker has frozen what it loaded. Walking only through the rest takes no time."""
    walk_s = 60.0
    monkeypatch.setattr(garbage_collection, "WALK_S", walk_s)
    waiting: list[Callable[[], object]] = []
    collector = FreezingCollector(waiting.append, lambda: False)
    before = garbage_collection.freeze()
    assert before < walk_s
    collector.begin(walk_s)
    alive = gc.get_freeze_count()
    lost = Circle()
    reference = weakref.ref(lost)
    survivors = [Circle() for _ in range(2 * alive)]
    gc.collect()
    work_off(waiting)
    del lost
    survivors += [Circle() for _ in range(alive // 2)]
    gc.collect()
    work_off(waiting)
    assert reference() is not None, "a walk while clients are connected"
    collector.end()
    gc.unfreeze()
    assert survivors


def test_while_clients_are_connected_a_long_walk_waits_for_more_growth(busy: list[Callable[[], object]]) -> None:
    alive = gc.get_freeze_count()
    lost = Circle()
    reference = weakref.ref(lost)
    survivors: list[object] = [Circle() for _ in range(alive)]
    gc.collect()
    work_off(busy)
    del lost
    gc.collect()
    work_off(busy)
    assert gc.get_freeze_count() > 2 * alive
    assert reference() is not None, "frozen: not looked at"
    survivors += [Circle() for _ in range((GROWTH_MAX - 1) * alive)]
    gc.collect()
    work_off(busy)
    assert reference() is None


def test_frozen_objects_are_not_counted_for_each_portion(
    busy: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count visits every frozen object: 14 ms or more where 18,777 share groups are held."""
    counts = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(count()) or counts[-1])
    for _ in range(50):
        passing = [Circle() for _ in range(count() // 10)]
        gc.collect()
        work_off(busy)
        for circle in passing:
            del circle.itself
    assert not counts, "as many objects live as before"
    survivors = [Circle() for _ in range(4 * count())]
    gc.collect()
    work_off(busy)
    assert len(counts) == 2, "before the full walk, and after it"
    assert survivors


def test_where_python_does_not_count_blocks_the_objects_are_counted(
    chores: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: 0)
    test_what_became_garbage_afterwards_is_found_when_as_much_was_kept_again(chores)


def test_what_a_start_leaves_is_collected_and_the_rest_is_frozen() -> None:
    collector = FreezingCollector(lambda _callback: None)
    collector.begin()
    try:
        lost, survivor = Circle(), Circle()
        reference, before = weakref.ref(lost), gc.get_freeze_count()
        del lost
        collector.release_memory()
        assert (reference(), gc.get_freeze_count() > before) == (None, True)
        assert survivor not in gc.get_objects()
    finally:
        collector.end()


def test_the_longest_collection_is_measured() -> None:
    collector = FreezingCollector(lambda _callback: None)
    collector.begin()
    survivors = [Circle() for _ in range(1000)]
    gc.collect()
    collector.end()
    gc.unfreeze()
    assert collector.take_longest() > 0
    assert collector.take_longest() == 0
    assert survivors
