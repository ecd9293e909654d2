"""Sections of settings."""

from __future__ import annotations

import pytest
from kafka_share_proxy.feature.settings import Seconds, Section, kept_in_fleet
from pydantic import ValidationError


class Pause(Section):
    """An example."""

    pause_s: Seconds = 1.0


@pytest.mark.parametrize("wrong", [{"pause": 1}, {"pause_s": 0}, {"pause_s": float("inf")}])
def test_unknown_keys_and_unusable_times_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Pause.model_validate(wrong)


def test_settings_never_change() -> None:
    with pytest.raises(ValidationError):
        Pause().pause_s = 2.0  # type: ignore[misc]


def test_section_has_no_mistakes_and_no_further_values_unless_it_says_so() -> None:
    assert list(Pause().mistakes(is_fleet=True)) == []
    assert Pause().named_values("pause_s") is None
    assert Pause.dotted_names == {}


def test_only_a_state_in_a_topic_can_be_taken_over() -> None:
    assert list(kept_in_fleet("topic")) == []
    assert [path for path, _ in kept_in_fleet("memory")] == [("state",)]
