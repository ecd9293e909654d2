"""Assignor "simple" of share groups: balance before stickiness (KIP-932; Kafka's SimpleAssignor).

How it works: with M members and P partitions, each partition needs S = ceil(M/P) members, so that no member is idle.
Member i of the sorted members has quota ceil(k(i+1)) - ceil(ki) with k = S*P/M: the quotas sum up to S*P and differ by
one at most. Members keep what they hold, except partitions they no longer subscribe to, those above their quota, and
those that more than S members hold. Partitions with fewer than S members then go to members below their quota. If all
of these already hold a partition, Kafka leaves it with fewer members. Here two members exchange a partition instead
(such an exchange always exists). If members subscribe to different topics, each topic is balanced separately. All
orders are by member id, topic id and partition, so that equal input yields equal output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

Assignment = Mapping[bytes, tuple[int, ...]]
"""Topic id -> partitions in ascending order."""

Partition = tuple[bytes, int]


def assign(
    members: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, int],
    current: Mapping[str, Mapping[bytes, Collection[int]]],
) -> dict[str, Assignment]:
    """Return the target assignment. Every member is a key of the result.

    `members`: member id -> subscribed topic ids; `partitions`: topic id -> number of partitions (topics absent here are
    not assigned); `current`: present assignment of each member.
    """
    assigned: dict[str, set[Partition]] = {member: set() for member in members}
    for subscribers, topics in _balanced_apart(members):
        balanced = {member: _still_valid(topics, partitions, current.get(member, {})) for member in subscribers}
        _balance(subscribers, _partitions(topics, partitions), balanced)
        for member, member_partitions in balanced.items():
            assigned[member] |= member_partitions
    return {member: by_topic(member_partitions) for member, member_partitions in assigned.items()}


def _balanced_apart(members: Mapping[str, frozenset[bytes]]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield members and topics to balance together: all of them, or topic by topic. Both are sorted."""
    topics = sorted(frozenset().union(*members.values()))
    if len(set(members.values())) <= 1:
        yield sorted(members), topics
        return
    subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in topics}
    for member in sorted(members):
        for topic_id in members[member]:
            subscribers[topic_id].append(member)
    for topic_id in topics:
        yield subscribers[topic_id], [topic_id]


def _still_valid(
    topics: Iterable[bytes], partitions: Mapping[bytes, int], current: Mapping[bytes, Collection[int]]
) -> set[Partition]:
    return {
        (topic_id, partition)
        for topic_id in topics
        for partition in current.get(topic_id, ())
        if 0 <= partition < partitions.get(topic_id, 0)
    }


def _partitions(topics: Iterable[bytes], partitions: Mapping[bytes, int]) -> list[Partition]:
    return [(topic_id, partition) for topic_id in topics for partition in range(partitions.get(topic_id, 0))]


def quotas(members: int, partitions: int) -> list[int]:
    total = sharing_degree(members, partitions) * partitions
    steps = [-(-total * count // members) for count in range(members + 1)]
    return [bound - previous for previous, bound in pairwise(steps)]


def sharing_degree(members: int, partitions: int) -> int:
    return -(-members // partitions) if partitions else 0


def _balance(members: list[str], partitions: list[Partition], assigned: dict[str, set[Partition]]) -> None:
    """Change `assigned`, limited to these partitions, until every one has exactly the required number of members."""
    if not partitions:
        return
    degree = sharing_degree(len(members), len(partitions))
    quota = dict(zip(members, quotas(len(members), len(partitions)), strict=True))
    holders = _holders(members, partitions, assigned)
    for member in members:
        _trim_member(member, quota[member], assigned, holders)
    for partition in partitions:
        for member in sorted(holders[partition])[degree:]:
            assigned[member].discard(partition)
            holders[partition].discard(member)
    _fill(members, partitions, degree, quota, assigned, holders)


def _holders(
    members: list[str], partitions: list[Partition], assigned: dict[str, set[Partition]]
) -> dict[Partition, set[str]]:
    holders: dict[Partition, set[str]] = {partition: set() for partition in partitions}
    for member in members:
        for partition in assigned[member]:
            holders[partition].add(member)
    return holders


def _trim_member(
    member: str, quota: int, assigned: dict[str, set[Partition]], holders: dict[Partition, set[str]]
) -> None:
    """Remove partitions above the quota, those with most members first, so that the fewest partitions move."""
    excess = len(assigned[member]) - quota
    if excess <= 0:
        return
    for partition in sorted(assigned[member], key=lambda partition: (-len(holders[partition]), partition))[:excess]:
        assigned[member].discard(partition)
        holders[partition].discard(member)


def _fill(
    members: list[str],
    partitions: list[Partition],
    degree: int,
    quota: Mapping[str, int],
    assigned: dict[str, set[Partition]],
    holders: dict[Partition, set[str]],
) -> None:
    """Add members below their quota to each partition that has too few, in rotation."""
    room = {member: quota[member] - len(assigned[member]) for member in members}
    waiting = [member for member in members if room[member] > 0]
    position = 0
    for partition in partitions:
        while len(holders[partition]) < degree:
            taker = _next_without(waiting, position, holders[partition])
            if taker is None:
                _exchange(waiting[position % len(waiting)], partition, members, assigned, holders)
                taker = position % len(waiting)
            else:
                assigned[waiting[taker]].add(partition)
                holders[partition].add(waiting[taker])
            room[waiting[taker]] -= 1
            position = taker + 1
            if room[waiting[taker]] == 0:
                del waiting[taker]
                position = taker


def _next_without(waiting: list[str], start: int, holders: set[str]) -> int | None:
    for step in range(len(waiting)):
        index = (start + step) % len(waiting)
        if waiting[index] not in holders:
            return index
    return None


def _exchange(
    unfilled: str,
    partition: Partition,
    members: list[str],
    assigned: dict[str, set[Partition]],
    holders: dict[Partition, set[str]],
) -> None:
    """Give a partition to a full member, and one of that member's partitions to the unfilled one, which has it.

    Such a member exists: some member lacks the partition, and holds at least quota - 1 others, more than the unfilled
    one.
    """
    for donor in members:
        if donor in holders[partition]:
            continue
        donor_partition = min(assigned[donor] - assigned[unfilled], default=None)
        if donor_partition is not None:
            assigned[donor].remove(donor_partition)
            holders[donor_partition].remove(donor)
            assigned[unfilled].add(donor_partition)
            holders[donor_partition].add(unfilled)
            assigned[donor].add(partition)
            holders[partition].add(donor)
            return
    raise AssertionError("an exchange always exists, see _exchange")


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, tuple[int, ...]]:
    by_topic_id: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic_id.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(numbers) for topic_id, numbers in by_topic_id.items()}
