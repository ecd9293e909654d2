"""What survives a collection is not walked through again; garbage among it is found in the end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from proxy.app.garbage_collection import Garbage


class Circle:
    """Refers to itself: only a collection finds out that nobody needs it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def chores() -> Iterator[list[Callable[[], object]]]:
    """A process whose garbage is kept small, and what is to be called at the end of the turn."""
    waiting: list[Callable[[], object]] = []
    garbage = Garbage(waiting.append)
    garbage.begin()
    yield waiting
    garbage.end()
    gc.unfreeze()


def work_off(chores: list[Callable[[], object]]) -> None:
    while chores:
        chores.pop()()


def test_what_survived_is_not_looked_at_again(chores: list[Callable[[], object]]) -> None:
    before = gc.get_freeze_count()
    kept = [Circle() for _ in range(1000)]
    gc.collect()
    work_off(chores)
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects(generation=2)) < len(kept)


def test_younger_generations_freeze_nothing(chores: list[Callable[[], object]]) -> None:
    """What is young has yet to show that it stays."""
    gc.collect(0)
    gc.collect(1)
    assert chores == []


def test_what_became_garbage_afterwards_is_found_when_as_much_was_kept_again(
    chores: list[Callable[[], object]],
) -> None:
    lost = Circle()
    seen = weakref.ref(lost)
    gc.collect()
    work_off(chores)
    del lost
    gc.collect()
    work_off(chores)
    assert seen() is not None, "frozen: not looked at"
    kept = [Circle() for _ in range(gc.get_freeze_count())]
    gc.collect()
    work_off(chores)
    assert seen() is None
    assert kept
