"""Sections of settings."""

from __future__ import annotations

import pytest
from kafka_share_proxy.feature.settings import Seconds, Section
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
