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

HeldPartition = tuple[str, TopicPartition, PartitionCommits]
"""Group id, topic-partition, state."""


def section(services: CommitServices, lag: CommitLag) -> Generator[None, None, StatusSection]:
    """Return the groups held here by the number of their ranges."""
    groups: list[tuple[int, CommittingGroup]] = []
    for group in list(services.held.groups.values()):
        groups.append((sum(len(state.ranges) for state in group.partitions.values()), group))
        yield
    groups.sort(key=lambda entry: (-entry[0], entry[1].group_id))
    partitions: list[HeldPartition] = []
    left_out = 0
    for _, group in groups:
        shown, omitted_count = first(sorted(group.partitions.items()), ROWS_MAX - len(partitions))
        partitions += [(group.group_id, topic_partition, state) for topic_partition, state in shown]
        left_out += omitted_count
    rows = [_row(entry, lag) for entry in partitions]
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


def _row(held_partition: HeldPartition, lag: CommitLag) -> tuple[Cell, ...]:
    group_id, topic_partition, state = held_partition
    committed = state.last_committed if state.last_committed >= 0 else None
    ranges = len(state.ranges)
    return group_id, _name(topic_partition), committed, ranges, state.offsets_open, lag.of(topic_partition, state)


def _detail(group: CommittingGroup) -> Detail:
    holes = [
        (_name(topic_partition), str(hole), hole.end - hole.start)
        for topic_partition, state in sorted(group.partitions.items())
        for hole in islice(state.ranges.gaps(max(state.last_committed, 0), state.ranges.end), HOLES_MAX)
        if state.ranges
    ]
    rows, left_out = first(holes, DETAIL_ROWS_MAX)
    return Detail(group.group_id, parts=(StatusTable("Oldest holes", HOLE_COLUMNS, rows, left_out),))


def _name(topic_partition: TopicPartition) -> str:
    return f"{topic_partition.topic}-{topic_partition.partition}"
