"""Operations as bits of authorized-operations fields."""

from __future__ import annotations

from kafka_share_proxy.wire.acl_operations import AclOperation, bits_of


def test_bits_are_the_codes_of_the_operations() -> None:
    assert (AclOperation.READ.bit, AclOperation.DESCRIBE.bit) == (8, 256)
    assert bits_of(AclOperation.READ, AclOperation.DESCRIBE) == 264
    assert bits_of() == 0
