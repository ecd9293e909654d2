"""Lag of the readers of views, for metrics and the status page (views/README.md rule 55)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from kafka_share_proxy.brokers.log_ends import LogEnds, LoggedPartition
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.views.model.catalog import View
from kafka_share_proxy.views.model.readers import SlotReader
from kafka_share_proxy.views.services import ViewServices

STEP = 500
"""Number of partitions of views examined between serving clients."""


@dataclass(slots=True)
class ViewLagSurvey:
    """Lag of all views with readers here at one time."""

    slowest: dict[tuple[str, int], int] = field(default_factory=dict)
    """Lag of the slowest slot, by view and base partition."""
    unknown: int = 0
    """Partitions of views with a reader and without known lag."""

    def by_view(self) -> Counter[str]:
        summed = Counter[str]()
        for (view, _), lag in self.slowest.items():
            summed[view] += lag
        return summed


class ViewLag:
    """Source of the lag of views."""

    def __init__(self, views: ViewServices) -> None:
        services = views.services
        self._views = views
        self.ends = LogEnds(services.own, services.topology, services.timers.now, services.slices)

    def refresh(self) -> Promise[None]:
        """Look up the ends of the logs; see LogEnds.refresh."""
        return self.ends.refresh(self._base_partitions)

    def of(self, view: View, base_partition: int, reader: SlotReader) -> int | None:
        """Return the number of offsets that a reader has not received. None if it is not known."""
        end = self.ends.of(view.base_id, base_partition)
        return None if end is None else max(end - reader.position, 0)

    def survey(self) -> Generator[None, None, ViewLagSurvey]:
        """Add up the lag by view. Other requests may run between two steps."""
        survey = ViewLagSurvey()
        for number, (view, base_partition, _, reader) in enumerate(self.readers()):
            lag = self.of(view, base_partition, reader)
            if lag is None:
                survey.unknown += 1
            else:
                at = view.name.topic, base_partition
                survey.slowest[at] = max(lag, survey.slowest.get(at, 0))
            if number % STEP == STEP - 1:
                yield
        return survey

    def readers(self) -> Iterator[tuple[View, int, int, SlotReader]]:
        """Yield view, base partition, slot and reader."""
        catalog, readers = self._views.catalog, self._views.reads.readers
        readers.forget(self._views.services.timers.now(), lambda topic_id: catalog.view(topic_id) is None)
        for (topic_id, partition), reader in list(readers.known.items()):
            view = catalog.view(topic_id)
            if view is not None:
                yield view, *view.place(partition), reader

    def _base_partitions(self) -> Iterator[LoggedPartition]:
        for view, base_partition, _, _ in self.readers():
            yield view.base_id, base_partition
