"""Who a member is, in the bytes that confluent-kafka passes from a consumer to a transactional producer.

The broker then refuses offsets of a transaction whose member is none any more (KIP-447). The bytes are librdkafka's own
(`rd_kafka_consumer_group_metadata_write`, version 2 of them); a test compares them with what the library writes.
"""

from __future__ import annotations

import struct

from proxy.consumer.classic_messages import MemberIdentity

MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")
"""In the order of the machine: the bytes never leave it."""


def group_metadata(group_id: str, who: MemberIdentity) -> bytes:
    """As `Consumer.consumer_group_metadata()` of confluent-kafka returns it."""
    instance = b"\1" if who.instance_id is None else b"\0" + _text(who.instance_id)
    return MAGIC + _GENERATION.pack(who.generation) + _text(group_id) + _text(who.member_id) + instance


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
