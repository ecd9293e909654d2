"""Bits of authorized operations. Every client may do everything, as on a broker without an authorizer."""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Operations by their bit (AclOperation)."""

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


def bits_of(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_CHANGES = (AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE)
TOPIC_OPERATIONS = bits_of(AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, *_CHANGES, *_CONFIGS)
CLUSTER_OPERATIONS = bits_of(AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE, *_CHANGES, *_CONFIGS)
GROUP_OPERATIONS = bits_of(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS)
UNKNOWN_OPERATIONS = -(1 << 31)
"""Value of a request that does not include them."""
