"""Topics that the members of a classic group subscribe to, from their metadata (ConsumerProtocolSubscription)."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.classic_group import ClassicGroup
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.errors import RemoteProtocolError

VERSION_BYTES = 2


CONSUMER = "consumer"


def classic_topics(group: ClassicGroup) -> set[str] | None:
    """Return the topics of all members. None if the metadata of a member of a consumer cannot be read."""
    topics: set[str] = set()
    if group.protocol_type != CONSUMER:
        return topics
    for member in group.members.values():
        subscription = subscription_topics(member.metadata(group.protocol))
        if subscription is None:
            return None
        topics.update(subscription)
    return topics


def subscription_topics(metadata: bytes) -> list[str] | None:
    """Return the topics in the metadata of one member. None if it cannot be read."""
    version = int.from_bytes(metadata[:VERSION_BYTES], "big", signed=True)
    codec = registry.codec_of(messages.ConsumerProtocolSubscription, min(max(version, 0), 3))
    try:
        return list(codec.decode(metadata, VERSION_BYTES).topics)
    except RemoteProtocolError:
        return None
