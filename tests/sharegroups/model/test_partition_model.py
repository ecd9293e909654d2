"""The engine behaves, step for step, as one object per record would (tests/sharegroups/model/naive.py)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sharegroups.model.world import RandomChooser, World

STEPS = 60
SEEDED_STEPS = 300


class DrawnChooser:
    """Lets hypothesis choose, so that it can shrink a failure to its shortest story."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, low: int, high: int) -> int:
        value: int = self._data.draw(st.integers(low, high))
        return value


def play(world: World, steps: int) -> None:
    for _ in range(steps):
        try:
            world.step()
        except Exception as error:
            error.add_note("\n".join(world.story))
            raise


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_story_ends_where_the_naive_model_ends(data: st.DataObject) -> None:
    play(World(DrawnChooser(data)), STEPS)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_story_ends_where_the_naive_model_ends(seed: int) -> None:
    play(World(RandomChooser(seed)), SEEDED_STEPS)
