"""Topics that the members of a classic group subscribe to, from their metadata (ConsumerProtocolSubscription)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.conformance.target.consumer_protocol import CONSUMER, read_subscription


def classic_topics(group: ClassicGroup) -> set[str] | None:
    """Return the topics of all members. None if the metadata of a member of a consumer cannot be read."""
    topics: set[str] = set()
    if group.protocol_type != CONSUMER:
        return topics
    for member in group.members.values():
        subscription = read_subscription(member.metadata(group.protocol))
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return topics
