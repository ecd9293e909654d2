"""Metrics that Prometheus scrapes: each feature adds its own, with the source of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kafka_share_proxy.loop.promise import Promise

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

Kind = Literal["counter", "gauge", "histogram"]


class Distribution(Protocol):
    """Values of a histogram."""

    total: float

    def cumulative(self) -> Iterable[tuple[str, int]]:
        """Return (upper bound, number of values up to it), from the lowest to "+Inf"."""


Figure = float | Distribution
Reading = Figure | Mapping[str, Figure] | Mapping[tuple[str, ...], Figure]
"""One figure, or one per value of the label, or per tuple of values of several labels."""


OTHERS = "(others)"
"""Label value of everything that has no name in a metric (`limits.metrics_groups`)."""


def most_by_name(figures: Counter[str], names_max: int) -> dict[str, float]:
    """Return the largest figures by name, and the sum of all others."""
    largest: dict[str, float] = dict(figures.most_common(names_max))
    return largest | {OTHERS: figures.total() - sum(largest.values())}


class _Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    read: Callable[[], Reading]
    labels: tuple[str, ...]


class Metrics:
    """Metrics that are computed only when they are scraped."""

    def __init__(self) -> None:
        self._metrics: list[_Metric] = []
        self._snapshots: list[Callable[[], Iterable[None] | None]] = []
        self.lookups: list[Callable[[], Promise[None]]] = []
        """Look-ups at brokers that a scrape waits for, at most for a while. None of them fails."""

    def add_lookup(self, begin: Callable[[], Promise[None]]) -> None:
        """Register a look-up at brokers, which limits its own rate. It begins at a scrape."""
        self.lookups.append(begin)

    def before(self, take_snapshot: Callable[[], Iterable[None] | None]) -> None:
        """Register a call before each scrape, for work shared by several metrics.

        If it takes long, it returns an iterable of steps.
        """
        self._snapshots.append(take_snapshot)

    def add(self, name: str, kind: Kind, help_text: str, read: Callable[[], Reading], *labels: str) -> None:
        """Add a metric named `ksp_NAME`. With labels, `read` returns a mapping by label value, or by tuples of
        several.
        """
        self._metrics.append(_Metric(f"ksp_{name}", kind, help_text, read, labels))

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return b"".join(self.steps())

    def steps(self) -> Iterator[bytes]:
        """Yield the text in pieces, some of them empty. Clients may be served in between."""
        # Imported at the first scrape (see admin): a proxy without scrapes does not need these several MiB.
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

        for take_snapshot in self._snapshots:
            for _ in take_snapshot() or ():
                yield b""
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        yield generate_latest(registry)
        for metric in self._metrics:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_collector(metric))
            yield generate_latest(registry)


def _by_labels(metric: _Metric) -> list[tuple[tuple[str, ...], Figure]]:
    """Return (label values, figure), sorted."""
    reading = metric.read()
    if not isinstance(reading, Mapping):
        return [((), reading)]
    by_labels = {(label,) if isinstance(label, str) else label: value for label, value in reading.items()}
    return sorted(by_labels.items(), key=itemgetter(0))


def _collector(metric: _Metric) -> Collector:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector

    families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}

    class Snapshot(Collector):
        """Current value of one metric."""

        def collect(self) -> Iterator[Family]:
            """Yield the family of this metric, with its samples."""
            family: Any = families[metric.kind](metric.name, metric.help, labels=metric.labels)
            for labels, value in _by_labels(metric):
                if isinstance(value, int | float):
                    family.add_metric(labels, value)
                else:
                    family.add_metric(labels, list(value.cumulative()), value.total)
            yield family

    return Snapshot()
