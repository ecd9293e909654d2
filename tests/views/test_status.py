"""Views on the status page."""

from __future__ import annotations

import pytest
from kafka_share_proxy.feature.status import HEAT_COLUMNS_MAX, HEAT_ROWS_MAX, StatusSection
from kafka_share_proxy.views import status
from kafka_share_proxy.views.lag import ViewLag

from tests.support.status_sections import heat, lines
from tests.support.steps import result_of
from tests.support.view_ports import ViewWorld

KEYS = [b"key-%d" % number for number in range(100)]


@pytest.fixture
def world() -> ViewWorld:
    created = ViewWorld()
    base = created.topic("t", (1, 1))
    created.produce(base, KEYS)
    return created


def section(world: ViewWorld) -> StatusSection:
    lag = ViewLag(world.views)
    assert lag.refresh().done
    return result_of(status.section(world.views, lag))


def test_the_heat_map_shows_records_sent_by_base_partition_and_slot(world: ViewWorld) -> None:
    view = world.view("__view.r2.t")
    world.fetch(world.connect(), {view: {0: 0, 1: 0}}, wait_ms=0)
    shown = section(world)
    (line,) = lines(shown.tables[0])
    assert (line["View"], line["Base partitions"], line["Slots"]) == ("__view.r2.t", 2, 2)
    assert (line["Partitions with a reader"], line["Lag of the slowest slots"], line["Records sent"]) == (2, 100, 100)
    hot = heat(shown.details)
    (label, cells), (_, none) = hot.rows
    assert (hot.columns, label, none) == (["0", "1"], "0", [None, None])
    assert sum(int(cell.text) for cell in cells if cell) == 100
    assert max(cell.level for cell in cells if cell) == 1.0
    assert all("a lag of 100" in cell.about for cell in cells if cell)


def test_a_view_without_readers_has_no_heat_map(world: ViewWorld) -> None:
    world.view("__view.r2.t")
    shown = section(world)
    assert lines(shown.tables[0])[0]["Lag of the slowest slots"] is None
    assert shown.details == []


def test_a_large_view_is_cut_and_counted(world: ViewWorld) -> None:
    base = world.topic("wide", (1,) * (HEAT_ROWS_MAX + 1))
    world.produce(base, KEYS)
    view = world.view("__view.r100.wide")
    world.fetch(world.connect(), {view: {0: 0}}, wait_ms=0)
    hot = heat(section(world).details)
    assert (len(hot.rows), len(hot.columns)) == (HEAT_ROWS_MAX, HEAT_COLUMNS_MAX)
    assert hot.left_out == (HEAT_ROWS_MAX + 1) * 100 - HEAT_ROWS_MAX * HEAT_COLUMNS_MAX


def test_the_reason_of_an_unknown_lag_is_shown(world: ViewWorld) -> None:
    view = world.view("__view.r2.t")
    world.fetch(world.connect(), {view: {0: 0}}, wait_ms=0)
    world.own.refuses = "no route to host"
    shown = section(world)
    assert shown.notes == ["Lag is incomplete or old: no route to host"]
    cell = heat(shown.details).rows[0][1][0]
    assert cell is not None
    assert "an unknown lag" in cell.about
