"""A bound on renewing: how often, or for how long, one delivery may be kept by renewals (none in Kafka).

KIP-1222 lets a member renew without end, and the oldest offset it keeps so holds the group's start offset. Where a
group has a bound, the renewal that would pass it is refused and the lock runs out at its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from proxy.sharegroups.model.offset_runs import OffsetRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalBound:
    """What one delivery of a record may take."""

    groups: str = "*"
    """Which groups it holds for: an id, or a pattern with * and ?."""
    renewals: int | None = None
    """So many renewals are granted."""
    held_s: float | None = None
    """No renewal is granted once the record was held for so long."""

    def holds_for(self, group_id: str) -> bool:
        """Whether the group is one of them."""
        return fnmatchcase(group_id, self.groups)

    def struck_by(self, run: OffsetRun, now: float) -> str | None:
        """Why the holder of `run` may not renew it any more, in words; None when it may."""
        if self.renewals is not None and run.renewals >= self.renewals:
            return f"offset {run.first} was renewed {run.renewals} times, and the group's bound is {self.renewals}"
        held_s = now - run.acquired_at
        if self.held_s is not None and held_s >= self.held_s:
            return f"offset {run.first} is held for {held_s:.1f} s, and the group's bound is {self.held_s:g} s"
        return None
