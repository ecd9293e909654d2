"""Identity of a member, in the bytes that confluent-kafka passes from a consumer to a transactional producer.

The broker then refuses offsets of a transaction whose member is no longer in the group (KIP-447). The bytes are
librdkafka's own (`rd_kafka_consumer_group_metadata_write`, version 2), which a test compares.
"""

from __future__ import annotations

import struct

from kafka_share_proxy.consumer.groups.classic_messages import MemberIdentity

MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")
"""Native byte order, since the bytes never leave the machine."""


def group_metadata(group_id: str, identity: MemberIdentity) -> bytes:
    """Return what `Consumer.consumer_group_metadata()` of confluent-kafka does."""
    instance = b"\1" if identity.instance_id is None else b"\0" + _text(identity.instance_id)
    return MAGIC + _GENERATION.pack(identity.generation) + _text(group_id) + _text(identity.member_id) + instance


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
