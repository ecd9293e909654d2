"""Settings of the section."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.settings import Commits
from pydantic import ValidationError


@pytest.mark.parametrize("wrong", [{"ranges_max": 0}, {"state": "disk"}, {"group": "etl-*"}])
def test_values_out_of_bounds_and_unknown_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Commits.model_validate(wrong)


def test_ranges_in_memory_are_a_mistake_in_a_fleet_that_serves_them() -> None:
    assert [path for path, _ in Commits(state="memory").mistakes(is_fleet=True)] == [("state",)]
    for fine in (Commits(state="memory", serve=False), Commits(), Commits(state="metadata")):
        assert list(fine.mistakes(is_fleet=True)) == []
    assert list(Commits(state="memory").mistakes(is_fleet=False)) == []
