"""Bits of authorized operations. Every client may do everything, as on a broker without an authorizer."""

from __future__ import annotations

from kafka_share_proxy.wire.acl_operations import AclOperation, bits_of

_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
_CHANGES = (AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE)
TOPIC_OPERATIONS = bits_of(AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, *_CHANGES, *_CONFIGS)
CLUSTER_OPERATIONS = bits_of(AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE, *_CHANGES, *_CONFIGS)
GROUP_OPERATIONS = bits_of(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS)
