"""Lag of share groups as KIP-1226 computes it, for metrics and the status page (sharegroups/README.md rule 105).

Computed from the state held here and the ends of logs that `brokers.log_ends` looked up. In a fleet each proxy has the
lag of the groups that it owns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from kafka_share_proxy.brokers.log_ends import LogEnds, LoggedPartition
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey
from kafka_share_proxy.sharegroups.services import ShareServices

STEP = 500
"""Number of share partitions examined between serving clients."""
SURVEYED_MAX = 100_000
"""Maximum number of share partitions examined for one scrape. The lag of all others is unknown."""


@dataclass(slots=True)
class LagSurvey:
    """Lag of all share groups held here at one time."""

    by_group: Counter[str] = field(default_factory=Counter)
    """Records to deliver or settle, of the share partitions with known lag."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Share partitions without known lag, also 0 for a group."""


class ShareLag:
    """Source of the lag of share groups."""

    def __init__(self, services: ShareServices) -> None:
        self._services = services
        self.ends = LogEnds(services.own, services.topology, services.timers.now, services.slices)

    def refresh(self) -> Promise[None]:
        """Look up the ends of the logs; see LogEnds.refresh."""
        return self.ends.refresh(self._partitions)

    def of(self, key: ShareKey) -> int | None:
        """Return the lag of a share partition. None if it, or the end of its log, is not known."""
        progress = self._services.coordinator.progress(key)
        end = self.ends.of(key.topic_id, key.partition)
        if progress is None or end is None:
            return None
        start_offset, settled = progress
        return max(end - start_offset - settled, 0)

    def survey(self) -> Generator[None, None, LagSurvey]:
        """Add up the lag by group. Other requests may run between two steps."""
        survey, coordinator = LagSurvey(), self._services.coordinator
        examined = 0
        for number, group_id in enumerate(list(coordinator.groups)):
            if number % STEP == STEP - 1:
                yield
            survey.unknown[group_id] = 0
            for key in coordinator.keys_of(group_id):
                examined += 1
                lag = self.of(key) if examined <= SURVEYED_MAX else None
                if lag is None:
                    survey.unknown[group_id] += 1
                else:
                    survey.by_group[group_id] += lag
                if examined % STEP == 0:
                    yield
        return survey

    def _partitions(self) -> Iterator[LoggedPartition]:
        coordinator = self._services.coordinator
        for group_id in list(coordinator.groups):
            for key in coordinator.keys_of(group_id):
                yield key.topic_id, key.partition
