"""Small groups for tests of assignors."""

from __future__ import annotations

from kafka_share_proxy.consumer.assignors.interface import Assigned, Assignor
from kafka_share_proxy.consumer.groups.group_protocol import GroupSubscription
from kafka_share_proxy.wire.values import TopicPartition


def places(text: str) -> list[TopicPartition]:
    """Return the partitions of a text: `a0 a1 b2` is partitions 0 and 1 of a, 2 of b."""
    return [TopicPartition(each[0], int(each[1:])) for each in text.split()]


def member(
    topics: str, had: str = "", generation: int = -1, assignor: Assignor | None = None, **more: str
) -> GroupSubscription:
    """Return a member that subscribes to one-letter topics and had partitions in a generation."""
    owned = places(had)
    data = assignor.user_data(frozenset(owned), generation) if assignor and had else None
    return GroupSubscription(topics=tuple(topics), owned=tuple(owned), generation=generation, user_data=data, **more)


def shown(assigned: Assigned) -> dict[str, str]:
    """Return the partitions of each member as text, `a0 a1`, in the order of the assignment."""
    return {name: " ".join(f"{topic}{number}" for topic, number in each) for name, each in assigned.items()}
