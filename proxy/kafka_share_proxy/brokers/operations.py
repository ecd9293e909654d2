"""Operations that brokers report as allowed (KIP-430), in the authorized-operations fields of responses."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from kafka_share_proxy.brokers.queries import TopicEntry
from kafka_share_proxy.wire.errors import ErrorCode

NO_BITS = -(1 << 31)
"""Value of an authorized-operations field without information."""


class Operation(IntEnum):
    """Operation by its code (org.apache.kafka.common.acl.AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9

    @property
    def bit(self) -> int:
        """Bit of the operation in an authorized-operations field."""
        return 1 << self


READ_BIT, DESCRIBE_BIT = Operation.READ.bit, Operation.DESCRIBE.bit
"""Constants because each request of a client is checked with them."""


def missing_on(topic: TopicEntry, needed: Iterable[Operation]) -> tuple[str, ...]:
    """Return the names of the operations that are not allowed on a topic of a Metadata response.

    None are missing if the broker reports no operations.
    """
    is_refused = topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    bits = 0 if is_refused else topic.topic_authorized_operations
    return () if bits == NO_BITS else tuple(each.name for each in needed if not bits & each.bit)
