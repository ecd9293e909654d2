"""Previous owners of partitions, from the claims of all members (AbstractStickyAssignor.allSubscriptionsEqual).

If two members claim the same partition, the one with the later generation owns it. If the generations are equal,
neither member owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafka_share_proxy.consumer.assignors.hash_order import string_order
from kafka_share_proxy.consumer.assignors.interface import Assigned, Members, PartitionCounts
from kafka_share_proxy.consumer.groups.group_protocol import NO_GENERATION, GroupSubscription
from kafka_share_proxy.wire.values import TopicPartition

Claim = tuple[tuple[TopicPartition, ...], int | None]
"""Generation None: not in the subscription."""
ClaimOf = Callable[[GroupSubscription], Claim]


@dataclass(slots=True)
class PreviousOwners:
    """Previous owners, after conflicting claims are settled."""

    owned: Assigned = field(default_factory=dict)
    """Partitions of every member before, in HashMap order of the members."""
    claimed_twice: set[TopicPartition] = field(default_factory=set)
    latest_generation: int = NO_GENERATION
    claims: dict[str, Claim] = field(default_factory=dict)


def previous_owners(counts: PartitionCounts, members: Members, claim_of: ClaimOf) -> PreviousOwners:
    """Return the previous owners. Claims on partitions that do not exist are dropped (Java would assign them)."""
    owners = PreviousOwners()
    owner: dict[TopicPartition, str] = {}
    for member_id in string_order(members):
        claim = owners.claims[member_id] = claim_of(members[member_id])
        owners.latest_generation = max(owners.latest_generation, _generation(claim[1]))
        owners.owned[member_id] = []
        for partition in claim[0]:
            if partition.partition < counts.get(partition.topic, 0):
                _settle(owners, owner, members, member_id, partition)
    return owners


def _settle(
    owners: PreviousOwners,
    owner: dict[TopicPartition, str],
    members: Members,
    member_id: str,
    partition: TopicPartition,
) -> None:
    own_generation = _generation(owners.claims[member_id][1])
    other = owner.get(partition)
    # Java compares with the generation in the other member's subscription, not with the one in its user data.
    theirs = NO_GENERATION if other is None else members[other].generation
    if other is not None and own_generation < theirs:
        return
    if other is not None and partition in owners.owned[other]:
        owners.owned[other].remove(partition)
    owner[partition] = member_id
    if other is not None and own_generation == theirs:
        owners.claimed_twice.add(partition)
    else:
        owners.owned[member_id].append(partition)


def earlier_claims(owners: PreviousOwners) -> dict[TopicPartition, str]:
    """Return the latest claimant of each partition among the members of earlier generations."""
    claims: dict[TopicPartition, tuple[str, int]] = {}
    for member_id, partition, generation in _outdated(owners):
        if partition not in claims or generation > claims[partition][1]:
            claims[partition] = (member_id, generation)
    return {partition: member_id for partition, (member_id, _) in claims.items()}


def _outdated(owners: PreviousOwners) -> Iterator[tuple[str, TopicPartition, int]]:
    for member_id, (partitions, generation) in owners.claims.items():
        if _generation(generation) < owners.latest_generation:
            yield from ((member_id, partition, _generation(generation)) for partition in partitions)


def _generation(claimed: int | None) -> int:
    return NO_GENERATION if claimed is None else claimed
