"""Assignor `weighted-sticky`: view partitions are balanced by the weights of their slots (consumer/README.md rule 47).

A fresh assignment shows which balance is possible. Then members keep their partitions, give up those that exceed that
balance by over 5 %, and partitions are moved or swapped only until it is reached. There are three ways to give up:
nothing first, few partitions, or light ones. Of all these candidates the one with the fewest revocations is used.

Rebalances end. One that follows a revocation revokes fewer partitions, or changes to the fresh assignment, after which
nothing is revoked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from kafka_share_proxy.consumer.assignors.interface import (
    Assigned,
    Members,
    PartitionCounts,
    SlotWeights,
    static_members_first,
)
from kafka_share_proxy.consumer.assignors.member_loads import MemberLoads
from kafka_share_proxy.consumer.assignors.previous_owners import Claim, previous_owners
from kafka_share_proxy.consumer.assignors.racks import Racks, all_partitions
from kafka_share_proxy.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, changing_hands
from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.groups.group_protocol import NO_GENERATION, GroupSubscription
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition

SLACK = 1.05
"""Factor on the balance of a fresh assignment before partitions move (consumer/README.md rule 48)."""
GOOD = 1.01
"""Factor on the mean load within which a fresh assignment is not improved further."""


class WeightedStickyAssignor:
    """Assignor `weighted-sticky`: a partition is not assigned until its owner has released it."""

    name = "weighted-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Racks | None = None,
        weights: SlotWeights | None = None,
    ) -> Assigned:
        """Balance like `cooperative-sticky` if no subscribed topic has known weights."""
        topics = {topic for subscription in members.values() for topic in subscription.topics}
        counts = {topic: counts[topic] for topic in sorted(topics) if counts.get(topic)}
        shares = {topic: _shares(count, (weights or {}).get(topic, ())) for topic, count in counts.items()}
        if not any(shares.values()):
            return CooperativeStickyAssignor().assign(counts, members, racks)
        assigned = _balanced(counts, members, _weights(counts, shares))
        for partition, taker in changing_hands(assigned, members).items():
            assigned[taker].remove(partition)
        return assigned

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:  # noqa: ARG002 - interface
        """Return None: the subscription contains all."""
        return None


def _shares(count: int, weights: Sequence[float]) -> tuple[float, ...]:
    total = sum(weights)
    usable = 0 < total < math.inf and count % len(weights) == 0 and all(each >= 0 for each in weights)
    return tuple(each * len(weights) / total for each in weights) if usable else ()


def _weights(counts: PartitionCounts, shares: Mapping[str, Sequence[float]]) -> dict[TopicPartition, float]:
    """Return weights with mean 1 in each topic, all 1 if they are not known."""
    return {
        each: shares[each.topic][each.partition % len(shares[each.topic])] if shares[each.topic] else 1.0
        for each in sorted(all_partitions(counts))
    }


def _balanced(counts: PartitionCounts, members: Members, weights: Mapping[TopicPartition, float]) -> Assigned:
    order = static_members_first(members, members)
    fresh = MemberLoads(order, members, weights)
    fresh.distribute()
    mean = sum(weights.values()) / len(order)
    fresh.balance(max(mean, *weights.values()) * GOOD, mean / GOOD)
    heaviest, lightest = fresh.heaviest * SLACK, fresh.lightest / SLACK
    claims = previous_owners(counts, members, _claim).owned
    owner = {
        each: member_id
        for member_id in order
        for each in sorted(claims[member_id])
        if each.topic in members[member_id].topics
    }
    candidates = [_matched(fresh.assigned(), owner, members)]
    for shed, floor in ((math.inf, math.inf), (heaviest, math.inf), (heaviest, lightest)):
        loads = MemberLoads(order, members, weights)
        for each, member_id in owner.items():
            loads.give(member_id, each)
        loads.shed(shed, floor)
        loads.distribute()
        if loads.balance(heaviest, lightest):
            candidates.append(loads.assigned())
    unowned = len(weights) - len(owner)
    ends = [each for each in candidates[1:] if not unowned or _revocations(each, owner) < unowned]
    return min([*ends, candidates[0]], key=lambda assigned: _revocations(assigned, owner))


def _revocations(assigned: Assigned, owner: Mapping[TopicPartition, str]) -> int:
    return sum(owner.get(each, name) != name for name, partitions in assigned.items() for each in partitions)


def _matched(assigned: Assigned, owner: Mapping[TopicPartition, str], members: Members) -> Assigned:
    """Give each member the part of its subscription that overlaps most with its partitions."""
    overlaps = Counter((name, owner[each]) for name, mine in assigned.items() for each in mine if each in owner)
    free, matched = dict.fromkeys(assigned), Assigned()
    for (part, taker), _ in sorted(overlaps.items(), key=lambda item: (-item[1], item[0])):
        if part in free and taker not in matched and _alike(members, part, taker):
            matched[taker] = assigned[part]
            del free[part]
    for taker in [name for name in assigned if name not in matched]:
        part = next(each for each in free if _alike(members, each, taker))
        matched[taker] = assigned[part]
        del free[part]
    return matched


def _alike(members: Members, one: str, other: str) -> bool:
    return set(members[one].topics) == set(members[other].topics)


def _claim(subscription: GroupSubscription) -> Claim:
    return subscription.owned, None if subscription.generation == NO_GENERATION else subscription.generation
