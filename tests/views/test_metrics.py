"""Figures of views on /metrics."""

from __future__ import annotations

from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.views import metrics as view_metrics
from kafka_share_proxy.views.lag import ViewLag
from kafka_share_proxy.views.model.catalog import Binding

from tests.support.view_broker import World


def test_every_counter_of_reads_and_the_catalog_are_shown() -> None:
    world = World()
    metrics = Metrics()
    view_metrics.add(metrics, world.views, ViewLag(world.views))
    world.views.catalog.bind("__view.r2.orders", Binding(b"v" * 16, b"b" * 16))
    page = metrics.render().decode()
    for name in view_metrics.COUNTERS:
        assert f"ksp_view_{name}_total 0.0" in page, name
    assert f"ksp_views {len(world.views.catalog)}.0" in page
    assert "ksp_view_cache_bytes 0.0" in page
