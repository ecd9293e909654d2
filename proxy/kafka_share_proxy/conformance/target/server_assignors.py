"""Assignors of consumer groups: "uniform" and "range" (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import NamedTuple

from kafka_share_proxy.wire.values import TopicIdPartition

UNIFORM, RANGE = "uniform", "range"

Assigned = dict[str, set[TopicIdPartition]]
"""Partitions by member id."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    topic_ids: Set[bytes]
    current: Set[TopicIdPartition]
    """Partitions of the member in the previous target assignment."""


def uniform(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> Assigned:
    """Give every member as many partitions as the others, and move few of them."""
    every = [TopicIdPartition(topic_id, index) for topic_id in topics for index in range(topics[topic_id])]
    assigned: Assigned = {member_id: set() for member_id in members}
    owners: dict[TopicIdPartition, str] = {}
    _keep(members, every, assigned, owners)
    for partition in every:
        if partition not in owners:
            candidates = [each for each in sorted(members) if partition.topic_id in members[each].topic_ids]
            if candidates:
                assigned[min(candidates, key=lambda each: len(assigned[each]))].add(partition)
    return assigned


def _keep(
    members: Mapping[str, Subscriber],
    every: list[TopicIdPartition],
    assigned: Assigned,
    owners: dict[TopicIdPartition, str],
) -> None:
    """Let members keep what they have, up to their share if all subscribe to the same topics."""
    is_homogeneous = len({frozenset(each.topic_ids) for each in members.values()}) == 1
    least, rest = divmod(len(every), len(members)) if is_homogeneous else (len(every), 0)
    for member_id in sorted(members, key=lambda each: (-len(members[each].current), each)):
        current_partitions = [each for each in every if each in members[member_id].current and each not in owners]
        allowed = [each for each in current_partitions if each.topic_id in members[member_id].topic_ids]
        quota = least + (1 if rest > 0 and len(allowed) > least else 0)
        rest -= quota - least
        for partition in allowed[:quota]:
            assigned[member_id].add(partition)
            owners[partition] = member_id


def in_ranges(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> Assigned:
    """Divide the partitions of each topic in ranges between its subscribers."""
    assigned: Assigned = {member_id: set() for member_id in members}
    for topic_id, count in topics.items():
        subscribed = [each for each in sorted(members) if topic_id in members[each].topic_ids]
        begin = 0
        for position, member_id in enumerate(subscribed):
            size = count // len(subscribed) + (1 if position < count % len(subscribed) else 0)
            assigned[member_id].update(TopicIdPartition(topic_id, index) for index in range(begin, begin + size))
            begin += size
    return assigned


ASSIGNORS: Mapping[str, Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], Assigned]] = {
    UNIFORM: uniform,
    RANGE: in_ranges,
}
"""Assignors by name. The first is the default."""
