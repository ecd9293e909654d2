"""Plots of a report (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("matplotlib", reason="the extra [spark] is not installed")

from kafka_share_proxy.pipeline.plan.key_range_planner import make_plan
from kafka_share_proxy.pipeline.report import report_plots
from kafka_share_proxy.pipeline.report.report_job import HEAT_COLUMNS, Deliveries, Heat
from kafka_share_proxy.pipeline.report.report_plots import step_text

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "reported"),
    [(1, "second"), (30, "30 seconds"), (60, "minute"), (10_800, "3 hours"), (172_800, "2 days")],
)
def test_steps_of_time_have_their_unit(seconds: int, reported: str) -> None:
    assert step_text(seconds) == reported


def test_even_ranges_have_the_load_of_the_columns_they_cover() -> None:
    assert report_plots._even([1.0, 2.0, 3.0, 4.0], 2) == [3.0, 7.0]
    assert report_plots._even([4.0, 8.0], 4) == [2.0, 2.0, 4.0, 4.0]
    assert report_plots._even([3.0, 3.0], 3) == pytest.approx([2.0, 2.0, 2.0])


@pytest.mark.parametrize("steps", [1, 120])
def test_any_span_of_time_is_drawn(steps: int) -> None:
    cells = tuple(tuple([1.0] * HEAT_COLUMNS) for _ in range(steps))
    heat = Heat("orders", tuple(NOON + timedelta(hours=at) for at in range(steps)), cells, 1.0, 3_600)
    done = Deliveries(3_600, tuple((NOON + timedelta(hours=at), at, 0) for at in range(steps)))
    plan = make_plan({0: 1.0, 40_000: 1.0}, 2)
    for image in (report_plots.deliveries(done), report_plots.heat(heat), report_plots.plan(heat, plan)):
        assert image.startswith(b"\x89PNG")
    assert report_plots.plan(None, plan).startswith(b"\x89PNG")
