"""Metrics of individual commits: counters, and a survey of the held groups that is made on request."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from kafka_share_proxy.commits.held_state import HeldCommits
from kafka_share_proxy.feature.metrics import OTHERS
from kafka_share_proxy.loop.histogram import Histogram, seconds_histogram
from kafka_share_proxy.wire.errors import NO_ERROR, ErrorCode

NEAR_LIMIT = 0.8
"""Fraction of the allowed ranges from which on a partition is near the limit."""
GROUPS_A_STEP = 20
"""Number of groups counted in one step: each may have thousands of ranges."""


@dataclass(slots=True)
class CommitFigures:
    """Counters of individual commits, one object per process."""

    individual: int = 0
    """Accepted individual commits of partitions."""
    plain: int = 0
    refused: int = 0
    append_s: Histogram = field(default_factory=seconds_histogram)
    """Seconds until a change of ranges was stored or had failed."""

    def count(self, code: ErrorCode | None, *, is_individual: bool) -> None:
        if code is not None and code != NO_ERROR:
            self.refused += 1
        elif is_individual:
            self.individual += 1
        else:
            self.plain += 1

    @property
    def commits(self) -> dict[str, int]:
        """Commits of partitions by outcome, as far as there are any."""
        counts = {"individual": self.individual, "plain": self.plain, "refused": self.refused}
        return {outcome: count for outcome, count in counts.items() if count}


class GroupCommits(NamedTuple):
    """Ranges of one group, or of all OTHERS together."""

    group_id: str
    ranges: int
    offsets_open: int
    """Unfinished offsets below the ends of the last ranges."""


class HeldSurvey(NamedTuple):
    """Result of one survey of all groups held here."""

    groups: list[GroupCommits]
    """Groups with the most ranges, and one entry for all others."""
    near_limit: int
    """Partitions near the maximum number of ranges."""


def survey(held: HeldCommits, groups_max: int, ranges_max: int) -> Generator[None, None, HeldSurvey]:
    groups, near_limit = list[GroupCommits](), 0
    for number, group in enumerate(list(held.groups.values())):
        each = [partition for partition in group.partitions.values() if partition.ranges]
        if each:
            ranges = sum(len(partition.ranges) for partition in each)
            groups.append(GroupCommits(group.group_id, ranges, sum(partition.offsets_open for partition in each)))
            near_limit += sum(len(partition.ranges) >= NEAR_LIMIT * ranges_max for partition in each)
        if number % GROUPS_A_STEP == 0:
            yield
    groups.sort(key=attrgetter("ranges"), reverse=True)
    shown, not_shown = groups[:groups_max], groups[groups_max:]
    combined = GroupCommits(
        OTHERS, sum(each.ranges for each in not_shown), sum(each.offsets_open for each in not_shown)
    )
    return HeldSurvey([*shown, combined], near_limit)
