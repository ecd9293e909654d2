"""Metrics of views, named without the prefix `ksp_`."""

from __future__ import annotations

from collections.abc import Callable, Generator

from kafka_share_proxy.feature.metrics import Metrics, most_by_name
from kafka_share_proxy.views.lag import ViewLag, ViewLagSurvey
from kafka_share_proxy.views.services import ViewServices

COUNTERS = {
    "requests": "Fetches of views served here.",
    "reads": "Fetches made upstream for views.",
    "joined": "Waits for a Fetch of another client's request.",
    "read_bytes": "Bytes of records that were read from brokers for views.",
    "scanned_bytes": "Bytes of records that were scanned for responses.",
    "kept_bytes": "Bytes of records in responses.",
    "kept_records": "Records in responses.",
    "corrupt": "Batches that could not be split.",
    "threaded": "Runs of batches that a thread split.",
    "large": "Batches so large when decompressed that a separate thread split them.",
}
"""Counters of `views.fetch.shared_reads`: name -> help."""


def add(metrics: Metrics, views: ViewServices, lag: ViewLag) -> None:
    """Add all metrics."""
    catalog, cache, figures = views.catalog, views.reads.cache, views.reads.figures

    def reader(name: str) -> Callable[[], float]:
        return lambda: float(getattr(figures, name))

    for name, words in COUNTERS.items():
        metrics.add(f"view_{name}", "counter", words, reader(name))
    metrics.add("views", "gauge", "Views that are ready.", lambda: len(catalog))
    metrics.add(
        "view_cache_bytes",
        "gauge",
        "Bytes of recently read batches and their parts.",
        lambda: cache.bytes,
    )
    metrics.add("view_cache_hits", "counter", "Lookups for slots that the cache served.", lambda: cache.hits)
    metrics.add("view_cache_misses", "counter", "Lookups for slots that the cache did not serve.", lambda: cache.misses)
    _of_lag(metrics, views, lag)


def _of_lag(metrics: Metrics, views: ViewServices, lag: ViewLag) -> None:
    """Add lag by view. Views with the largest lag are shown by name."""
    now = [ViewLagSurvey()]

    def take_survey() -> Generator[None, None, None]:
        now[0] = yield from lag.survey()

    def shown() -> dict[str, float]:
        return most_by_name(now[0].by_view(), views.services.limits.metrics_groups)

    metrics.add_lookup(lag.refresh)
    metrics.before(take_survey)
    words = "Records of the base that the slowest slots have not received, summed over base partitions."
    metrics.add("view_lag", "gauge", words, shown, "view")
    words = "Partitions of views with a reader whose lag is not known, and not in ksp_view_lag."
    metrics.add("view_lag_partitions_unknown", "gauge", words, lambda: now[0].unknown)
