"""Lag of views: what the slowest slot of each base partition has not received."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.log_ends import PERIOD_S
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.forwarding.limits import Limits
from kafka_share_proxy.views import metrics as view_metrics
from kafka_share_proxy.views.lag import ViewLag, ViewLagSurvey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.steps import result_of
from tests.support.view_ports import ViewWorld, partitions_of

KEYS = [b"key-%d" % number for number in range(100)]


def survey(lag: ViewLag) -> ViewLagSurvey:
    assert lag.refresh().done
    return result_of(lag.survey())


@pytest.fixture
def world() -> ViewWorld:
    view_world = ViewWorld()
    base = view_world.topic("t", (1, 1))
    for partition in (0, 1):
        view_world.produce(base, KEYS, partition)
    return view_world


def test_lag_is_that_of_the_slowest_slot_of_each_base_partition(world: ViewWorld) -> None:
    view = world.view("__view.r2.t")
    client, lag = world.connect(), ViewLag(world.views)
    world.fetch(client, {view: {0: 100, 1: 30, 2: 0}}, wait_ms=0)
    lag_survey = survey(lag)
    assert lag_survey.slowest == {("__view.r2.t", 0): 70, ("__view.r2.t", 1): 100}
    assert lag_survey.by_view() == {"__view.r2.t": 170}


def test_lag_grows_while_no_reader_fetches(world: ViewWorld) -> None:
    view = world.view("__view.r2.t")
    client, lag = world.connect(), ViewLag(world.views)
    world.fetch(client, {view: {0: 100, 1: 100}}, wait_ms=0)
    assert survey(lag).by_view() == {"__view.r2.t": 0}
    client.close()
    world.produce(world.cluster.topics["t"], KEYS[:7])
    world.timers.advance(PERIOD_S)
    assert survey(lag).by_view() == {"__view.r2.t": 7}


def test_records_sent_are_counted_by_slot(world: ViewWorld) -> None:
    view = world.view("__view.r2.t")
    world.fetch(world.connect(), {view: {0: 0, 1: 0}}, wait_ms=0)
    readers = [reader for _, _, _, reader in ViewLag(world.views).readers()]
    assert sum(reader.records for reader in readers) == 100
    assert all(reader.bytes > 0 for reader in readers)


def test_a_refused_fetch_and_plain_topics_note_no_position(world: ViewWorld) -> None:
    view = world.view("__view.r2.t")
    base = world.cluster.topics["t"].topic_id
    response = world.fetch(world.connect(), {view: {0: 5_000}, base: {0: 0}}, wait_ms=0).message
    assert partitions_of(response)[view, 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not world.views.reads.readers.known


def test_views_with_the_most_lag_are_shown_by_name_and_all_others_together(world: ViewWorld) -> None:
    world.views.services.limits = Limits(metrics_groups=1)
    views = [world.view(name) for name in ("__view.r2.t", "__view.s4.t")]
    world.fetch(world.connect(), {views[0]: {0: 90}, views[1]: {0: 40}}, wait_ms=0)
    metrics = Metrics()
    view_metrics.add(metrics, world.views, ViewLag(world.views))
    assert "ksp_view_lag_partitions_unknown 2.0" in metrics.render().decode()
    (lookup,) = metrics.lookups
    assert lookup().done
    page = metrics.render().decode()
    assert 'ksp_view_lag{view="__view.s4.t"} 60.0' in page
    assert 'ksp_view_lag{view="(others)"} 10.0' in page
    assert "ksp_view_lag_partitions_unknown 0.0" in page
