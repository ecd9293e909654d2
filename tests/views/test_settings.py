"""Settings of the section."""

from __future__ import annotations

import pytest
from kafka_share_proxy.views.settings import Views
from pydantic import ValidationError


@pytest.mark.parametrize("wrong", [{"slots_max": 1}, {"codec": "gzip"}, {"state": "disk"}, {"slot_max": 2}])
def test_values_out_of_bounds_and_unknown_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Views.model_validate(wrong)
