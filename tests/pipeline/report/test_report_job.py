"""Content of the tables, summarised for people (pipeline/README.md rules 40 and 41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka_share_proxy.pipeline.report.report_job import (
    HEAT_COLUMNS,
    Blocked,
    MemberTotals,
    Report,
    ViewGroup,
    _view_group,
    gather,
    range_loads,
    step_for,
)
from kafka_share_proxy.pipeline.tables.lake import Lake, NoLake

pytest.importorskip("pyspark", reason="the extra [spark] is not installed")


@pytest.mark.slow
def test_a_report_tells_what_the_audit_found(spark: Any, story_lake: Path, whole_report: Report) -> None:
    lake = Lake(spark, str(story_lake))
    report = gather(lake, "g")
    assert report.days == ("2026-11-21",)
    assert report.deliveries.step_s == 1
    steps = [(begin.second, count, again) for begin, count, again in report.deliveries.steps]
    assert steps == [(1, 1, 0), (5, 8, 0), (9, 1, 0)]
    assert report.members == (
        MemberTotals("g", "slow", 1, 0, 0, 3, 8_000, 64, "billing 10.0.0.7"),
        MemberTotals("g", "quick", 9, 0, 0, 0, 0, 64),
    )
    assert report.blocked[0] == Blocked("g", "orders-0", "slow", "11-11", 8_000, 8)
    assert [(each.topic, each.hash, each.share) for each in report.hot_keys] == [
        ("orders", 123, 0.45),
        ("orders", 9, 0.05),
    ]
    hot = report.hot_keys[0]
    assert hot.share_low is not None
    assert hot.share_high is not None
    assert hot.share_low < 0.45 < hot.share_high
    assert hot.sampled == 200
    (heat,) = report.heats
    assert [f"{each:%m-%d %H:%M}" for each in heat.times] == ["11-21 12:00"]
    assert (heat.step_s, heat.sampled) == (60, 4)
    assert (heat.cells[0][0], heat.cells[0][-1], sum(heat.cells[0])) == (750, 250, 1_000)
    assert heat.balance == pytest.approx(750 / 1_000 * HEAT_COLUMNS)
    assert report.view_groups == (
        ViewGroup("g", "__view.r2.orders", "range", 2, pytest.approx(2 * 150 / 225), ("range",)),
    )
    assert report.queues == (), "queues are those of another group"
    (modern,) = (each for each in whole_report.view_groups if each.group == "modern")
    assert modern == ViewGroup("modern", "__view.r2.orders", "uniform", 1, 1.0)
    with pytest.raises(NoLake, match="no delivery of group other"):
        gather(lake, "other")


@pytest.mark.parametrize(
    ("seconds", "step"), [(8, 1), (3_600, 60), (6 * 3_600, 300), (86_400, 1_800), (1e8, 1_123_200)]
)
def test_time_steps_follow_the_span(seconds: float, step: int) -> None:
    """An hour of traffic is 60 bars, and no report has more than it can show."""
    assert step_for(seconds, 90) == step
    assert seconds / step <= 90


def cells(*records: int, slots: int = 4) -> list[dict[str, int]]:
    return [{"partition": at // slots, "slot": at % slots, "rows": rows} for at, rows in enumerate(records)]


@pytest.mark.parametrize(
    ("members", "loads"),
    [
        (2, [10, 26]),  # 4 and 4
        (3, [6, 15, 15]),  # 3, 3 and 2
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (9, [1, 2, 3, 4, 5, 6, 7, 8, 0]),
    ],
)
def test_range_gives_out_runs_of_partitions(members: int, loads: list[int]) -> None:
    """As RangeAssignor does: with a remainder, the first members have one more."""
    assert range_loads(cells(1, 2, 3, 4, 5, 6, 7, 8), members) == loads


def test_consumers_that_share_a_client_id_are_told_apart_only_where_range_decides() -> None:
    """rdkafka is the client id of every librdkafka consumer by default."""
    row = {
        "group": "g", "view": "v", "group_protocol": "classic", "assignor": "range", "members": 2, "seen": 5,
        "clients": ["rdkafka"], "offered": [["range", "roundrobin"]],
    }  # fmt: skip
    clients = {"rdkafka": cells(30, 30, 30, 30, 10, 10, 10, 10)}
    assert _view_group(row, clients) == ViewGroup("g", "v", "range", 2, 1.5, ("range", "roundrobin"))
    assert _view_group(row | {"assignor": "roundrobin"}, clients).to_mean is None
    assert _view_group(row | {"members": None}, clients).members == 5
    assert _view_group(row, {}).to_mean is None
