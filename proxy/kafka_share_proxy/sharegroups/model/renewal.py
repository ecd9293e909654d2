"""Bound on how often, or for how long, renewals may extend one delivery (sharegroups/README.md rule 49)."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from kafka_share_proxy.sharegroups.model.offset_runs import OffsetRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalBound:
    """Limits on the renewals of one delivery."""

    groups: str = "*"
    """Group id, or a pattern with * and ?."""
    renewals: int | None = None
    held_s: float | None = None
    """Seconds after the acquisition from which renewals are refused."""

    def holds_for(self, group_id: str) -> bool:
        return fnmatchcase(group_id, self.groups)

    def refusal_of(self, run: OffsetRun, now: float) -> str | None:
        """Return the reason why the owner of `run` may not renew it. None if it may."""
        if self.renewals is not None and run.renewals >= self.renewals:
            return f"offset {run.first} was renewed {run.renewals} times, and the group's bound is {self.renewals}"
        held_s = now - run.acquired_at
        if self.held_s is not None and held_s >= self.held_s:
            return f"offset {run.first} is held for {held_s:.1f} s, and the group's bound is {self.held_s:g} s"
        return None
