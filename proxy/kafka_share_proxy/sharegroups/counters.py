"""Share group metrics by group, as a broker counts them (Kafka's ShareGroupMetrics, SharePartitionMetrics).

Code that acquires, acknowledges or waits adds to plain numbers, and names are formatted only when /metrics is
requested. A limited number of groups is counted by name, first come, first served, the others together as OTHERS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_share_proxy.feature.metrics import OTHERS
from kafka_share_proxy.loop.histogram import Histogram, seconds_histogram
from kafka_share_proxy.sharegroups.model.acknowledging import ACCEPT, REJECT, RELEASE, RENEW, AcknowledgementBatch
from kafka_share_proxy.sharegroups.model.acquiring import AcquiredRange
from kafka_share_proxy.sharegroups.model.snapshot import StateBatch

ACKNOWLEDGE_TYPES = {ACCEPT: "accept", RELEASE: "release", REJECT: "reject", RENEW: "renew"}
"""Label by AcknowledgeType. Gaps, which clients acknowledge for offsets without a record, are not counted, as on a
broker.
"""

RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
RECORDS = tuple(2.0**power for power in range(13))


@dataclass(slots=True)
class GroupFigures:
    """Figures of one group, or of all OTHERS."""

    acknowledged: list[int] = field(default_factory=lambda: [0] * (RENEW + 1))
    lock_timeouts: int = 0
    """Number of records whose acquisition lock expired before they were acknowledged."""
    dead_letters: int = 0
    """Number of dead letters written (DeadLetterQueueRecordCount)."""
    dead_letter_requests: int = 0
    """Number of transactions with dead letters (DeadLetterQueueTotalProduceRequestsPerSec)."""
    dead_letter_failures: int = 0
    """Number of failed ones (DeadLetterQueueFailedProduceRequestsPerSec)."""
    acquire_s: Histogram = field(default_factory=seconds_histogram)
    """Seconds from the arrival of a ShareFetch until it acquired records."""
    fetch_ratio: Histogram = field(default_factory=lambda: Histogram(RATIOS))
    """Fraction of the share partitions in a ShareFetch's session from which it acquired records."""
    fetch_lock_s: Histogram = field(default_factory=seconds_histogram)
    """Seconds that a share partition was reserved for one reader, including its wait for new records."""
    batch_records: Histogram = field(default_factory=lambda: Histogram(RECORDS))
    """Number of records in the in-flight batches created by first deliveries."""

    def acknowledge(self, batches: Iterable[AcknowledgementBatch]) -> None:
        """Count acknowledged records by type."""
        acknowledged = self.acknowledged
        for first, last, types in batches:
            if len(types) == 1:
                acknowledged[types[0]] += last - first + 1
                continue
            for acknowledge_type in range(RENEW + 1):
                acknowledged[acknowledge_type] += types.count(acknowledge_type)

    def acquire(self, ranges: Sequence[AcquiredRange]) -> None:
        if len(ranges) == 1:
            first, last, count = ranges[0]
            if count == 1:
                self.batch_records.observe(last - first + 1)
            return
        # There may be as many ranges as records, but only of a few sizes.
        for size, times in Counter([last - first + 1 for first, last, count in ranges if count == 1]).items():
            self.batch_records.observe(size, times)


class ShareFigures:
    """All figures of share groups of this process."""

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self._groups: dict[str, GroupFigures] = {}
        self._other_groups = GroupFigures()
        self.load_s = seconds_histogram()
        """Seconds from the first ShareFetch of a share partition until its start offset was stored."""
        self.state_write_s = seconds_histogram()
        """Duration of the append of one change of share state, in seconds."""
        self.moves: Counter[str] = Counter(dict.fromkeys(("handed_over", "taken_back", "refused"), 0))
        """Number of ended hand-overs and take-backs by outcome."""
        self.held_back_s = seconds_histogram()
        """Seconds for which a hand-over or a take-back held new records back."""

    def of(self, group_id: str) -> GroupFigures:
        return self._groups.get(group_id) or self._admit(group_id)

    def label(self, group_id: str) -> str:
        return OTHERS if self.of(group_id) is self._other_groups else group_id

    def _admit(self, group_id: str) -> GroupFigures:
        if len(self._groups) >= self._groups_max or group_id == OTHERS:
            return self._other_groups
        figures = self._groups[group_id] = GroupFigures()
        return figures

    def shown(self) -> Iterator[tuple[str, GroupFigures]]:
        """Yield (label, figures): the groups by name, then all others."""
        yield from self._groups.items()
        yield OTHERS, self._other_groups

    def forget(self, is_deleted: Callable[[str], bool]) -> None:
        for group_id in [group_id for group_id in self._groups if is_deleted(group_id)]:
            del self._groups[group_id]

    def lock_timed_out(self, group_id: str, changes: Iterable[StateBatch]) -> None:
        """Count the records whose locks expired."""
        self.of(group_id).lock_timeouts += sum(last - first + 1 for first, last, _, _ in changes)
