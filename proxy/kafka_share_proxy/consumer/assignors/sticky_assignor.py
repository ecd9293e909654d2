"""Assignors `sticky` and `cooperative-sticky`: balanced, with as few moves as that takes (KIP-54, KIP-429, KIP-881)."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.equal_subscriptions import EqualSubscriptions
from kafka_share_proxy.consumer.assignors.interface import Assigned, Members, PartitionCounts, SlotWeights
from kafka_share_proxy.consumer.assignors.previous_owners import Claim, ClaimOf, previous_owners
from kafka_share_proxy.consumer.assignors.racks import Nearness, Racks
from kafka_share_proxy.consumer.assignors.unequal_subscriptions import UnequalSubscriptions
from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_protocol import (
    NO_GENERATION,
    GroupSubscription,
    cooperative_user_data,
    read_cooperative_user_data,
    read_sticky_user_data,
    sticky_user_data,
)
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition


class StickyAssignor:
    """Assignor `sticky`: members give up their partitions when they join, and list them in the user data."""

    name = "sticky"
    protocol = RebalanceProtocol.EAGER

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Racks | None = None,
        weights: SlotWeights | None = None,  # noqa: ARG002 - interface
    ) -> Assigned:
        return _assign(counts, members, racks, lambda subscription: read_sticky_user_data(subscription.user_data))[0]

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:
        return None if assigned is None else sticky_user_data(assigned, generation)


class CooperativeStickyAssignor:
    """Assignor `cooperative-sticky`: a partition is not assigned until its owner has released it."""

    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Racks | None = None,
        weights: SlotWeights | None = None,  # noqa: ARG002 - interface
    ) -> Assigned:
        assigned, moving = _assign(counts, members, racks, _cooperative_claim)
        if moving is None:
            moving = changing_hands(assigned, members)
        for partition, taker in moving.items():
            assigned[taker].remove(partition)
        return assigned

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:
        """Return the generation, for leaders that read subscriptions only up to version 1."""
        return cooperative_user_data(NO_GENERATION if assigned is None else generation)


def _cooperative_claim(subscription: GroupSubscription) -> Claim:
    if subscription.generation != NO_GENERATION:
        return subscription.owned, subscription.generation
    return subscription.owned, read_cooperative_user_data(subscription.user_data)


def _assign(
    counts: PartitionCounts, members: Members, racks: Racks | None, claim_of: ClaimOf
) -> tuple[Assigned, dict[TopicPartition, str] | None]:
    """Return the assignment, and the new owner of each moved partition (None: unknown)."""
    subscribed_topics = {topic for subscription in members.values() for topic in subscription.topics}
    counts = {topic: count for topic, count in counts.items() if topic in subscribed_topics and count}
    previous = previous_owners(counts, members, claim_of)
    near = Nearness(counts, members, racks or {})
    if len({frozenset(subscription.topics) for subscription in members.values()}) == 1:
        equal = EqualSubscriptions(counts, previous, near)
        return equal.assign(), equal.moving
    return UnequalSubscriptions(counts, members, previous, near).assign(), None


def changing_hands(assigned: Assigned, members: Members) -> dict[TopicPartition, str]:
    """Return the new owner of each partition that its present owner must release first."""
    given_up = {
        each for member_id, partitions in assigned.items() for each in {*members[member_id].owned} - {*partitions}
    }
    return {
        each: member_id
        for member_id, partitions in assigned.items()
        for each in partitions
        if each in given_up and each not in members[member_id].owned
    }
