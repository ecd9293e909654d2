"""Bits of authorized operations."""

from __future__ import annotations

from kafka_share_proxy.conformance.target.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
)
from kafka_share_proxy.wire.acl_operations import AclOperation, bits_of


def test_bits_are_those_of_a_broker_without_an_authorizer() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, bits_of(AclOperation.READ)) == (3576, 3400, 8)
    assert CLUSTER_OPERATIONS & bits_of(AclOperation.IDEMPOTENT_WRITE)
