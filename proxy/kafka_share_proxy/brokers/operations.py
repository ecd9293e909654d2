"""Operations that brokers report as allowed (KIP-430), in the authorized-operations fields of responses."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.wire.acl_operations import NO_BITS, AclOperation
from kafka_share_proxy.wire.errors import ErrorCode

READ_BIT, DESCRIBE_BIT = AclOperation.READ.bit, AclOperation.DESCRIBE.bit
"""Constants because each request of a client is checked with them."""


def missing_on(topic: TopicEntry, needed: Iterable[AclOperation]) -> tuple[str, ...]:
    """Return the names of the operations that are not allowed on a topic of a Metadata response.

    None are missing if the broker reports no operations.
    """
    is_refused = topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    bits = 0 if is_refused else topic.topic_authorized_operations
    return () if bits == NO_BITS else tuple(each.name for each in needed if not bits & each.bit)
