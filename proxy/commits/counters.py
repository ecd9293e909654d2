"""What is counted of individual commits, and what is looked at when somebody asks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from proxy.commits.held_state import HeldCommits
from proxy.loop.histogram import Histogram, seconds
from proxy.wire.errors import NO_ERROR, ErrorCode

OTHERS = "(others)"
"""In place of the names of groups beyond the bound."""
NEAR_LIMIT = 0.8
"""A partition with so many of the ranges that it may have is shown as near the limit."""
GROUPS_A_STEP = 20
"""Groups looked at before clients are served again: each may have thousands of ranges."""


@dataclass(slots=True)
class CommitFigures:
    """What the metrics show of individual commits; one for each process."""

    commits: Counter[str] = field(default_factory=Counter)
    """Commits of a partition that came to the owner here: "individual", "plain", or "refused" by broker or proxy."""
    append_s: Histogram = field(default_factory=seconds)
    """From a change of ranges until it was stored, or could not be."""

    def took(self, code: ErrorCode | None, *, is_individual: bool) -> None:
        """A commit of a partition has its code."""
        is_refused = code is not None and code != NO_ERROR
        self.commits["refused" if is_refused else "individual" if is_individual else "plain"] += 1


class GroupCommits(NamedTuple):
    """What one group has done out of order, or all OTHERS."""

    group_id: str
    ranges: int
    offsets_open: int
    """Not done, between the committed offsets and the last ranges."""


class HeldSurvey(NamedTuple):
    """All groups held here, looked at once."""

    groups: list[GroupCommits]
    """Those with the most ranges by name, all others as one."""
    near_limit: int
    """Partitions that have nearly as many ranges as they may have: then commits are refused (12)."""


def survey(held: HeldCommits, groups_max: int, ranges_max: int) -> Generator[None, None, HeldSurvey]:
    """Look at all groups, in steps, for there may be many."""
    found, near_limit = list[GroupCommits](), 0
    for number, group in enumerate(list(held.groups.values())):
        each = [partition for partition in group.partitions.values() if partition.ranges]
        if each:
            ranges = sum(len(partition.ranges) for partition in each)
            found.append(GroupCommits(group.group_id, ranges, sum(partition.offsets_open for partition in each)))
            near_limit += sum(len(partition.ranges) >= NEAR_LIMIT * ranges_max for partition in each)
        if number % GROUPS_A_STEP == 0:
            yield
    found.sort(key=attrgetter("ranges"), reverse=True)
    shown, rest = found[:groups_max], found[groups_max:]
    others = GroupCommits(OTHERS, sum(each.ranges for each in rest), sum(each.offsets_open for each in rest))
    return HeldSurvey([*shown, others], near_limit)
