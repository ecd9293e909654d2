"""Operations in authorized-operations fields."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.operations import missing_on
from kafka_share_proxy.wire.acl_operations import NO_BITS, AclOperation
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

NEEDED = (AclOperation.READ, AclOperation.WRITE)


@pytest.mark.parametrize(
    ("bits", "code", "missing"),
    [
        (AclOperation.READ.bit | AclOperation.WRITE.bit, ErrorCode.NONE, ()),
        (AclOperation.WRITE.bit, ErrorCode.NONE, ("READ",)),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("READ", "WRITE")),
        (NO_BITS, ErrorCode.NONE, ()),
        (NO_BITS, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ("READ", "WRITE")),
    ],
)
def test_operations_that_are_not_allowed_are_named(bits: int, code: ErrorCode, missing: tuple[str, ...]) -> None:
    """A broker without an authorizer reports none, and a topic that is hidden allows none."""
    entry = messages.MetadataResponse.MetadataResponseTopic(
        name="t", error_code=code, topic_authorized_operations=bits, partitions=[]
    )
    assert missing_on(entry, NEEDED) == missing
