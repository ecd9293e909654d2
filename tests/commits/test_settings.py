"""Settings of the section."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.settings import Commits
from pydantic import ValidationError


@pytest.mark.parametrize("wrong", [{"ranges_max": 0}, {"state": "disk"}, {"group": "etl-*"}])
def test_values_out_of_bounds_and_unknown_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Commits.model_validate(wrong)
