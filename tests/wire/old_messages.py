"""Messages of magic 0 and 1, as brokers of their time kept them."""

from __future__ import annotations

import struct
import zlib

from kafka_share_proxy.wire.records import compression

TIMESTAMP = 1_500_000_000_000


def message(
    offset: int, key: bytes | None, value: bytes | None, magic: int = 1, attributes: int = 0, timestamp: int = TIMESTAMP
) -> bytes:
    """Build a message as an old broker keeps it."""
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, inner: bytes, codec: int, magic: int = 1, attributes: int = 0) -> bytes:
    """A compressed message that holds others."""
    return message(offset, None, compression.compress(codec, inner), magic, attributes | codec, TIMESTAMP + 99)
