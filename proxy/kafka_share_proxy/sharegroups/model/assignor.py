"""Assignor "simple" of share groups: balance before stickiness (KIP-932; Kafka's SimpleAssignor).

Theory of operation. With M members and P partitions, each partition needs S = ceil(M/P) members, so that no member is
idle if there are more members than partitions. Member i of the sorted members has quota ceil(k(i+1)) - ceil(ki) with
k = S*P/M: the quotas sum up to S*P and differ by one at most. Members keep what they hold, except partitions they no
longer subscribe to, those above their quota, and those that more than S members hold. Partitions with fewer than S
members then go to members below their quota.

If all members below quota already hold a partition, Kafka leaves it with fewer members. Here two members exchange a
partition instead (such an exchange always exists). Every partition therefore has exactly S members, and every member
its quota. If members subscribe to different topics, the same is done for each topic separately. All orders are by
member id, topic id and partition, so that equal input yields equal output.
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
    """Return the target assignment.

    `members`: member id -> subscribed topic ids; `partitions`: topic id -> number of partitions (topics absent here are
    not assigned); `current`: the present assignment of each member. Every member is a key of the result.
    """
    assigned: dict[str, set[Place]] = {member: set() for member in members}
    for subscribers, topics in _balanced_apart(members):
        held = {member: _still_valid(topics, partitions, current.get(member, {})) for member in subscribers}
        _balance(subscribers, _places(topics, partitions), held)
        for member, places in held.items():
            assigned[member] |= places
    return {member: by_topic(places) for member, places in assigned.items()}


def _balanced_apart(members: Mapping[str, frozenset[bytes]]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield members and topics to balance together: all of them, or topic by topic; both sorted."""
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
    """Return the number of partitions for each of the members, in order."""
    total = sharing_degree(members, partitions) * partitions
    steps = [-(-total * i // members) for i in range(members + 1)]
    return [after - before for before, after in pairwise(steps)]


def sharing_degree(members: int, partitions: int) -> int:
    """Return the number of members for each partition."""
    return -(-members // partitions) if partitions else 0


def _balance(members: list[str], places: list[Place], held: dict[str, set[Place]]) -> None:
    """Change `held`, limited to these partitions, until every one has exactly the required number of members."""
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
    """Remove partitions above the quota, those with most members first, so that the fewest partitions move."""
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
    """Add members below their quota to each partition that has too few, in rotation."""
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
    """Give `place` to a full member, and one of that member's partitions to the unfilled one, which has `place`.

    Such a member exists: some member lacks `place`, and holds at least quota - 1 others, more than the unfilled one.
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
    """Build the assignment that consists of these partitions."""
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}
