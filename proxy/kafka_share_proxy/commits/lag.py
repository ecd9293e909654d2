"""Lag of groups that commit individually, for metrics and the status page (commits/README.md rule 25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from kafka_share_proxy.brokers.log_ends import LogEnds
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.values import TopicPartition

PARTITIONS_A_STEP = 20
"""Number of partitions examined in one step: each may have thousands of ranges."""
SURVEYED_MAX = 10_000
"""Maximum number of partitions examined for one scrape. The lag of all others is unknown."""


@dataclass(slots=True)
class CommitLagSurvey:
    """Lag of the groups held here at one time."""

    by_group: Counter[str] = field(default_factory=Counter)
    """Unfinished records, of the partitions with known lag."""
    unknown: int = 0
    """Partitions with a committed offset and without known lag."""


class CommitLag:
    """Source of the lag of groups that commit individually."""

    def __init__(self, services: CommitServices) -> None:
        base = services.base
        self._services = services
        self.ends = LogEnds(base.own, base.topology, base.timers.now, base.slices)

    def refresh(self) -> Promise[None]:
        """Look up the ends of the logs; see LogEnds.refresh."""
        return self.ends.refresh(lambda: (topic_partition for _, topic_partition, _ in self._committed()))

    def of(self, topic_partition: TopicPartition, state: PartitionCommits) -> int | None:
        """Return the lag of one partition of a group. None if it is not known."""
        end, committed = self.ends.of(topic_partition.topic, topic_partition.partition), state.last_committed
        if end is None or committed < 0 or (state.records is not None and not state.is_committed_known):
            return None  # after a takeover the broker's text is not read yet
        return max(end - committed - state.offsets_done, 0)

    def survey(self) -> Generator[None, None, CommitLagSurvey]:
        """Add up the lag by group. Other requests may run between two steps."""
        survey = CommitLagSurvey()
        for number, (group_id, topic_partition, state) in enumerate(self._committed()):
            lag = self.of(topic_partition, state) if number < SURVEYED_MAX else None
            if lag is None:
                survey.unknown += 1
            else:
                survey.by_group[group_id] += lag
            if number % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
                yield
        return survey

    def _committed(self) -> Iterator[tuple[str, TopicPartition, PartitionCommits]]:
        """Yield the partitions with a committed offset."""
        for group in list(self._services.held.groups.values()):
            for topic_partition, state in list(group.partitions.items()):
                if state.last_committed >= 0:
                    yield group.group_id, topic_partition, state
