"""Individual commits on the status page: groups with their lag and holes."""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice

from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.lag import CommitLag
from kafka_share_proxy.commits.model.partition_commits import PartitionCommits
from kafka_share_proxy.commits.services import CommitServices
from kafka_share_proxy.feature.status import (
    DETAIL_ROWS_MAX,
    GROUPS_MAX,
    ROWS_MAX,
    Cell,
    Detail,
    StatusSection,
    StatusTable,
    first,
)
from kafka_share_proxy.wire.values import TopicPartition

TITLE = "Individual commits"
COLUMNS = ("Group", "Partition", "Committed", "Ranges", "Open offsets", "Lag")
HOLE_COLUMNS = ("Partition", "Hole", "Offsets")
HOLES_MAX = 5
"""Maximum number of holes shown for each partition, the oldest ones."""

Held = tuple[str, TopicPartition, PartitionCommits]


def section(services: CommitServices, lag: CommitLag) -> Generator[None, None, StatusSection]:
    """Return the groups held here by the number of their ranges."""
    groups: list[tuple[int, CommittingGroup]] = []
    for group in list(services.held.groups.values()):
        groups.append((sum(len(held.ranges) for held in group.partitions.values()), group))
        yield
    groups.sort(key=lambda each: (-each[0], each[1].group_id))
    partitions: list[Held] = []
    left_out = 0
    for _, group in groups:
        some, more = first(sorted(group.partitions.items()), ROWS_MAX - len(partitions))
        partitions += [(group.group_id, at, held) for at, held in some]
        left_out += more
    rows = [_row(each, lag) for each in partitions]
    with_holes = [group for ranges, group in groups if ranges]
    details = [_detail(group) for group in with_holes[:GROUPS_MAX]]
    trouble = [f"Lag is incomplete or old: {lag.ends.trouble}"] if lag.ends.trouble else []
    return StatusSection(
        TITLE,
        notes=trouble,
        tables=(StatusTable("Groups held by this proxy", COLUMNS, rows, left_out),),
        details=details,
        details_left_out=max(len(with_holes) - GROUPS_MAX, 0),
    )


def _row(each: Held, lag: CommitLag) -> tuple[Cell, ...]:
    group_id, at, held = each
    committed = held.last_committed if held.last_committed >= 0 else None
    ranges = len(held.ranges)
    return group_id, _name(at), committed, ranges, held.offsets_open, lag.of(at, held)


def _detail(group: CommittingGroup) -> Detail:
    holes = [
        (_name(at), str(hole), hole.end - hole.start)
        for at, held in sorted(group.partitions.items())
        for hole in islice(held.ranges.gaps(max(held.last_committed, 0), held.ranges.end), HOLES_MAX)
        if held.ranges
    ]
    rows, left_out = first(holes, DETAIL_ROWS_MAX)
    return Detail(group.group_id, parts=(StatusTable("Oldest holes", HOLE_COLUMNS, rows, left_out),))


def _name(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"
