"""Figures of the data plane."""

from dataclasses import FrozenInstanceError, fields

import pytest
from kafka_share_proxy.forwarding.plane_statistics import PlaneStatistics


def test_figures_of_one_moment_do_not_change() -> None:
    numbers = dict.fromkeys((field.name for field in fields(PlaneStatistics)), 0)
    statistics = PlaneStatistics(**numbers | {"ended": {}})
    with pytest.raises(FrozenInstanceError):
        statistics.connections = 1  # type: ignore[misc]  # what is tested
