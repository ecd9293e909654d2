"""Metrics as Prometheus reads them."""

from __future__ import annotations

from kafka_share_proxy.feature.metrics import Metrics


def test_metrics_are_read_when_they_are_requested() -> None:
    """Counters, gauges and labels as Prometheus expects them, in addition to those of the process."""
    value = {"n": 1.0}
    metrics = Metrics()
    metrics.add("things", "gauge", "Things now.", lambda: value["n"])
    metrics.add("done", "counter", "Things done.", lambda: {"a": 2, "b": 3}, "kind")
    assert b"ksp_things 1.0\n" in metrics.render()
    value["n"] = 5
    page = metrics.render()
    assert b"ksp_things 5.0\n" in page
    assert b'ksp_done_total{kind="a"} 2.0\n' in page
    assert b"process_resident_memory_bytes" in page


def test_a_snapshot_is_taken_once_for_all_figures() -> None:
    """Looking at ten thousand connections is done once a scrape."""
    snapshots: list[int] = []
    metrics = Metrics()
    metrics.before(lambda: snapshots.append(1))
    for name in ("a", "b", "c"):
        metrics.add(name, "gauge", "One of them.", lambda: len(snapshots))
    metrics.render()
    assert snapshots == [1]
