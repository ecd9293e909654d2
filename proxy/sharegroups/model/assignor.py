"""Assignor "simple" of share groups: balance before stickiness (KIP-932; Kafka's SimpleAssignor).

Theory of operation. With M members and P partitions, each partition wants S = ceil(M/P) members, so that nobody is idle
when members outnumber partitions. Member i of the sorted members has the quota ceil(k(i+1)) - ceil(ki), k = S*P/M: the
quotas sum up to S*P and differ by one at most. What members hold is kept, except what they no longer subscribe to, what
is above their quota, and what more than S members hold; free places then go to members below their quota.

Where nobody below quota can take a partition because all of them hold it already, Kafka leaves it with fewer members;
here two members exchange a partition instead (such an exchange always exists), so every partition has exactly S members
and every member its quota. When members subscribe to different topics the same is done for each topic by itself.
All orders are by member id, topic id and partition, so equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise

Assignment = Mapping[bytes, tuple[int, ...]]
"""Topic id -> partitions in ascending order."""

Place = tuple[bytes, int]
"""Topic id and partition."""


def assign(
    members: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, int],
    current: Mapping[str, Mapping[bytes, Collection[int]]],
) -> dict[str, Assignment]:
    """The target assignment.

    `members`: member id -> subscribed topic ids; `partitions`: topic id -> number of partitions (topics absent here are
    assigned to nobody); `current`: what each member has now. Every member is a key of the result.
    """
    assigned: dict[str, set[Place]] = {member: set() for member in members}
    for subscribers, topics in _balanced_apart(members):
        held = {member: _still_valid(topics, partitions, current.get(member, {})) for member in subscribers}
        _balance(subscribers, _places(topics, partitions), held)
        for member, places in held.items():
            assigned[member] |= places
    return {member: by_topic(places) for member, places in assigned.items()}


def _balanced_apart(members: Mapping[str, frozenset[bytes]]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Members and topics among which loads are balanced: all together, or topic by topic; both sorted."""
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
) -> set[Place]:
    return {
        (topic_id, partition)
        for topic_id in topics
        for partition in current.get(topic_id, ())
        if 0 <= partition < partitions.get(topic_id, 0)
    }


def _places(topics: Iterable[bytes], partitions: Mapping[bytes, int]) -> list[Place]:
    return [(topic_id, partition) for topic_id in topics for partition in range(partitions.get(topic_id, 0))]


def quotas(members: int, partitions: int) -> list[int]:
    """How many partitions each of the members, in order, is to have."""
    total = sharing_degree(members, partitions) * partitions
    steps = [-(-total * i // members) for i in range(members + 1)]
    return [after - before for before, after in pairwise(steps)]


def sharing_degree(members: int, partitions: int) -> int:
    """How many members each partition is to have."""
    return -(-members // partitions) if partitions else 0


def _balance(members: list[str], places: list[Place], held: dict[str, set[Place]]) -> None:
    """Change `held`, which has no other places, until every place has exactly the wanted number of these members."""
    if not places:
        return
    degree = sharing_degree(len(members), len(places))
    quota = dict(zip(members, quotas(len(members), len(places)), strict=True))
    holders = _holders(members, places, held)
    for member in members:
        _trim_member(member, quota[member], held, holders)
    for place in places:
        for member in sorted(holders[place])[degree:]:
            held[member].discard(place)
            holders[place].discard(member)
    _fill(members, places, degree, quota, held, holders)


def _holders(members: list[str], places: list[Place], held: dict[str, set[Place]]) -> dict[Place, set[str]]:
    holders: dict[Place, set[str]] = {place: set() for place in places}
    for member in members:
        for place in held[member]:
            holders[place].add(member)
    return holders


def _trim_member(member: str, quota: int, held: dict[str, set[Place]], holders: dict[Place, set[str]]) -> None:
    """Take what is above the quota, first what most others hold too: the fewest partitions move."""
    excess = len(held[member]) - quota
    if excess <= 0:
        return
    for place in sorted(held[member], key=lambda place: (-len(holders[place]), place))[:excess]:
        held[member].discard(place)
        holders[place].discard(member)


def _fill(
    members: list[str],
    places: list[Place],
    degree: int,
    quota: Mapping[str, int],
    held: dict[str, set[Place]],
    holders: dict[Place, set[str]],
) -> None:
    """Give each place that has too few members some of those below their quota, in turn."""
    room = {member: quota[member] - len(held[member]) for member in members}
    waiting = [member for member in members if room[member] > 0]
    turn = 0
    for place in places:
        while len(holders[place]) < degree:
            taker = _next_without(waiting, turn, holders[place])
            if taker is None:
                _exchange(waiting[turn % len(waiting)], place, members, held, holders)
                taker = turn % len(waiting)
            else:
                held[waiting[taker]].add(place)
                holders[place].add(waiting[taker])
            room[waiting[taker]] -= 1
            turn = taker + 1
            if room[waiting[taker]] == 0:
                del waiting[taker]
                turn = taker


def _next_without(waiting: list[str], turn: int, holders: set[str]) -> int | None:
    for step in range(len(waiting)):
        position = (turn + step) % len(waiting)
        if waiting[position] not in holders:
            return position
    return None


def _exchange(
    unfilled: str, place: Place, members: list[str], held: dict[str, set[Place]], holders: dict[Place, set[str]]
) -> None:
    """Give `place` to a full member, and one of that member's places to the unfilled one, who holds `place` already.

    Such a member exists: somebody lacks `place`, and holds at least quota - 1 others, more than the unfilled one does.
    """
    for donor in members:
        if donor in holders[place]:
            continue
        given = min(held[donor] - held[unfilled], default=None)
        if given is not None:
            held[donor].remove(given)
            holders[given].remove(donor)
            held[unfilled].add(given)
            holders[given].add(unfilled)
            held[donor].add(place)
            holders[place].add(donor)
            return
    raise AssertionError("an exchange always exists; see the theory of operation")


def by_topic(places: Iterable[Place]) -> dict[bytes, tuple[int, ...]]:
    """The assignment that consists of these partitions."""
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}
