"""Metrics of all workers as those of one proxy."""

from pathlib import Path

import kafka_share_proxy
import pytest
from kafka_share_proxy.app.workers.merged_metrics import MAXIMA, MergedMetrics
from kafka_share_proxy.feature.metrics import Metrics
from kafka_share_proxy.loop.histogram import Histogram
from prometheus_client.parser import text_string_to_metric_families

ROOMS = Path(kafka_share_proxy.__file__).parent


def of(text: bytes) -> dict[str, float]:
    """Values by name and labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def one(value: float, name: str = "connections", kind: str = "gauge") -> bytes:
    return f"# HELP ksp_{name} Help.\n# TYPE ksp_{name} {kind}\nksp_{name} {value}\n".encode()


def test_figures_of_workers_are_summed_by_label() -> None:
    texts = {
        0: b'# TYPE ksp_lag gauge\nksp_lag{group="a"} 1.0\nksp_lag{group="b"} 2.0\n',
        1: b'# TYPE ksp_lag gauge\nksp_lag{group="b"} 5.0\n',
    }
    merged = of(MergedMetrics().text(texts))
    assert merged == {"ksp_lag[('group', 'a')]": 1.0, "ksp_lag[('group', 'b')]": 7.0}


def test_what_every_worker_has_is_not_summed() -> None:
    assert of(MergedMetrics().text({0: one(3, "brokers"), 1: one(3, "brokers")})) == {"ksp_brokers": 3.0}


def test_a_gauge_and_a_counter_of_the_same_name_stay_different() -> None:
    text = one(2) + one(9, "connections_total", "counter")
    merged = of(MergedMetrics().text({0: text, 1: text}))
    assert merged == {"ksp_connections": 4.0, "ksp_connections_total": 18.0}


def test_histograms_are_summed() -> None:
    metrics, histogram = Metrics(), Histogram((0.01, 0.1))
    histogram.observe(0.001)
    metrics.add("served_request_seconds", "histogram", "Help.", lambda: {"Fetch": histogram}, "api")
    text = metrics.render()
    alone, both = of(MergedMetrics().text({0: text})), of(MergedMetrics().text({0: text, 1: text}))
    name = "ksp_served_request_seconds_count[('api', 'Fetch')]"
    assert (alone[name], both[name]) == (1.0, 2.0)


def test_a_counter_does_not_fall_when_a_worker_ends() -> None:
    merged, kind = MergedMetrics(), "counter"
    name = "bytes_up_total"
    merged.text({0: one(5, name, kind), 1: one(7, name, kind)})
    merged.ended(1)
    assert of(merged.text({0: one(6, name, kind)})) == {"ksp_bytes_up_total": 13.0}
    assert of(merged.text({0: one(6, name, kind), 2: one(1, name, kind)})) == {"ksp_bytes_up_total": 14.0}


def test_a_gauge_ends_with_its_worker() -> None:
    merged = MergedMetrics()
    merged.text({0: one(5), 1: one(7)})
    merged.ended(1)
    assert of(merged.text({0: one(5)})) == {"ksp_connections": 5.0}


def test_a_worker_that_was_never_read_ends_without_trace() -> None:
    merged = MergedMetrics()
    merged.ended(4)
    assert of(merged.text({0: one(5)})) == {"ksp_connections": 5.0}


@pytest.mark.parametrize("name", sorted(name for name in MAXIMA if name.startswith("ksp_")))
def test_each_maximum_is_a_metric(name: str) -> None:
    text = "".join(file.read_text() for file in ROOMS.rglob("metrics.py"))
    declared = name.removeprefix("ksp_")
    assert f'"{declared}"' in text
