"""Metrics of all workers as those of one proxy (app/README.md rule 14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

MAXIMA = frozenset(
    {
        "ksp_brokers",
        "ksp_brokers_left_out",
        "ksp_commit_groups",
        "ksp_commit_partitions_overflowing",
        "ksp_commit_partitions_uncertain",
        "ksp_commit_tail_age_seconds",
        "ksp_commit_tail_delay_seconds",
        "ksp_garbage_collection_longest_seconds",
        "ksp_peers",
        "ksp_state_topic_risks",
        "ksp_state_topic_unsafe",
        "ksp_turn_longest_seconds",
        "ksp_views",
        "process_max_fds",
        "process_start_time_seconds",
        "python_info",
    }
)
"""Metrics that every worker has about the same thing, or a longest time. All others are summed."""
CUMULATIVE = ("counter", "histogram")
"""Types whose values must not fall when a worker ends."""

Labels = tuple[tuple[str, str], ...]
Values = dict[tuple[str, Labels], float]
"""Values by name of the sample and labels."""


@dataclass(slots=True)
class _Family:
    help: str
    type: str
    values: Values = field(default_factory=dict)

    def add(self, name: str, values: Values) -> None:
        for key, value in values.items():
            before = self.values.get(key)
            if before is None:
                self.values[key] = value
            else:
                self.values[key] = max(before, value) if name in MAXIMA else before + value


Families = dict[tuple[str, str], _Family]
"""Families by name without suffix, and type: a gauge and a counter may have the same name."""


class MergedMetrics:
    """Metrics of the running workers, and cumulative ones of those that have ended, as they were last read."""

    def __init__(self) -> None:
        self._last: dict[int, Families] = {}
        """Families of running workers by number."""
        self._ended: Families = {}

    def text(self, texts: Mapping[int, bytes]) -> bytes:
        """Return the text for Prometheus. `texts`: those of workers by number."""
        from prometheus_client import CollectorRegistry, generate_latest

        for number, text in texts.items():
            self._last[number] = _parsed(text)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(_merged(self._ended, *(self._last[number] for number in texts))))
        return generate_latest(registry)

    def ended(self, number: int) -> None:
        """Keep the cumulative metrics of a worker that has ended."""
        last = self._last.pop(number, {})
        self._ended = _merged(self._ended, {key: each for key, each in last.items() if each.type in CUMULATIVE})


def _parsed(text: bytes) -> Families:
    from prometheus_client.parser import text_string_to_metric_families

    families: Families = {}
    for metric in text_string_to_metric_families(text.decode()):
        family = families[metric.name, metric.type] = _Family(metric.documentation, metric.type)
        for sample in metric.samples:
            family.values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return families


def _merged(*parts: Families) -> Families:
    merged: Families = {}
    for families in parts:
        for key, family in families.items():
            merged.setdefault(key, _Family(family.help, family.type)).add(key[0], family.values)
    return merged


class _Collected:
    """Collector of prometheus_client over families."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families, sorted by name."""
        from prometheus_client.metrics_core import Metric

        for (name, _), family in sorted(self._families.items(), key=itemgetter(0)):
            metric = Metric(name, family.help, family.type)
            for (sample, labels), value in family.values.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric
