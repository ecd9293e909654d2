"""What a broker counts of share groups, counted here (Kafka's ShareGroupMetrics, SharePartitionMetrics), by group.

Theory of operation. Whoever acquires, acknowledges or waits adds to plain numbers; nothing is named or formatted until
/metrics is asked for (`proxy.app.metrics`). Groups come and go and may be thousands, so only so many are counted by
name, those that came first; all others are one, OTHERS. A group that is gone makes room (`forget`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from proxy.loop.histogram import Histogram, seconds
from proxy.sharegroups.model.acknowledging import ACCEPT, REJECT, RELEASE, RENEW

OTHERS = "(others)"
"""In place of the name of a group beyond the bound."""

ACKNOWLEDGE_TYPES = {ACCEPT: "accept", RELEASE: "release", REJECT: "reject", RENEW: "renew"}
"""AcknowledgeType; gaps, which clients acknowledge for offsets without a record, are not counted, as on a broker."""

RATIOS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
RECORDS = tuple(2.0**power for power in range(13))
"""Upper bounds of histograms, included."""


@dataclass(slots=True)
class GroupFigures:
    """The figures of one group, or of all OTHERS."""

    acknowledged: list[int] = field(default_factory=lambda: [0] * (RENEW + 1))
    """Records by acknowledge type."""
    lock_timeouts: int = 0
    """Records whose acquisition lock ended before they were acknowledged."""
    acquire_s: Histogram = field(default_factory=seconds)
    """From the arrival of a ShareFetch until it acquired records."""
    fetch_ratio: Histogram = field(default_factory=lambda: Histogram(RATIOS))
    """Share partitions that gave a ShareFetch records, of those in its session."""
    fetch_lock_s: Histogram = field(default_factory=seconds)
    """How long a share partition was kept for one reader, its wait for new records included."""
    batch_records: Histogram = field(default_factory=lambda: Histogram(RECORDS))
    """Records of the in-flight batches that first deliveries made."""

    def acknowledge(self, first: int, last: int, types: Sequence[int]) -> None:
        """Records first..last were acknowledged, with one type or one for each."""
        if len(types) == 1:
            self.acknowledged[types[0]] += last - first + 1
            return
        for acknowledge_type in range(RENEW + 1):
            self.acknowledged[acknowledge_type] += types.count(acknowledge_type)

    def acquire(self, ranges: Sequence[tuple[int, int, int]]) -> None:
        """These (first, last, delivery count) were acquired."""
        if len(ranges) == 1:
            first, last, count = ranges[0]
            if count == 1:
                self.batch_records.observe(last - first + 1)
            return
        # There may be as many as records; then they are of few sizes.
        for size, times in Counter([last - first + 1 for first, last, count in ranges if count == 1]).items():
            self.batch_records.observe(size, times)


class ShareFigures:
    """All figures of share groups of this process."""

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self._groups: dict[str, GroupFigures] = {}
        self._others = GroupFigures()
        self.load_s = seconds()
        """From the first ShareFetch of a share partition until its start offset was stored."""
        self.state_write_s = seconds()
        """The append of one change of share state."""
        self.served_s: dict[int, Histogram] = {}
        """By API key: from a request that is served here until its answer."""

    def of(self, group_id: str) -> GroupFigures:
        """The figures that count for a group."""
        return self._groups.get(group_id) or self._admit(group_id)

    def label(self, group_id: str) -> str:
        """The name under which a group is shown."""
        return OTHERS if self.of(group_id) is self._others else group_id

    def _admit(self, group_id: str) -> GroupFigures:
        if len(self._groups) >= self._groups_max or group_id == OTHERS:
            return self._others
        made = self._groups[group_id] = GroupFigures()
        return made

    def shown(self) -> Iterator[tuple[str, GroupFigures]]:
        """(label, figures): the groups by name, then all others."""
        yield from self._groups.items()
        yield OTHERS, self._others

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Make room: groups that are gone are not shown any more."""
        for group_id in [group_id for group_id in self._groups if is_gone(group_id)]:
            del self._groups[group_id]

    def lock_timed_out(self, group_id: str, changes: Iterable[tuple[int, int, int, int]]) -> None:
        """Locks ended on these (first, last, state, delivery count)."""
        self.of(group_id).lock_timeouts += sum(last - first + 1 for first, last, _, _ in changes)

    def served(self, key: int, took_s: float) -> None:
        """A request of this API was answered here."""
        histogram = self.served_s.get(key)
        if histogram is None:
            histogram = self.served_s[key] = seconds()
        histogram.observe(took_s)
