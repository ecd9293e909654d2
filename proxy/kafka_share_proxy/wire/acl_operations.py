"""Operations that ACLs allow, as bits of the authorized-operations fields of responses (KIP-430)."""

from __future__ import annotations

from enum import IntEnum

NO_BITS = -(1 << 31)
"""Value of an authorized-operations field without information."""


class AclOperation(IntEnum):
    """Operation by its code (org.apache.kafka.common.acl.AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12

    @property
    def bit(self) -> int:
        """Bit of the operation in an authorized-operations field."""
        return 1 << self


def bits_of(*operations: AclOperation) -> int:
    return sum(each.bit for each in operations)
