"""Reference layouts, declared with construct (wire/README.md rules 4 and 20)."""

from __future__ import annotations

from typing import Any

from construct import (
    Array,
    BitsInteger,
    BitStruct,
    Bytes,
    Check,
    Const,
    Construct,
    Enum,
    Flag,
    GreedyBytes,
    GreedyRange,
    If,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    Padding,
    Prefixed,
    PrefixedArray,
    Rebuild,
    Struct,
    VarInt,
    ZigZag,
    len_,
    this,
)

FRAME = Prefixed(Int32sb, GreedyBytes)

TAG_SECTION = PrefixedArray(VarInt, Struct("tag" / VarInt, "data" / Prefixed(VarInt, GreedyBytes)))
"""Tagged fields (KIP-482)."""


def nullable(length: Construct) -> Construct:
    """Return the layout of bytes after a length: `length` and `data` (None for -1)."""
    return Struct(
        "length" / Rebuild(length, lambda context: -1 if context.data is None else len(context.data)),
        "_checked" / Check(this.length >= -1),
        "data" / If(this.length >= 0, Bytes(this.length)),
    )


CLIENT_ID = nullable(Int16sb)

REQUEST_HEADER_V0 = Struct("key" / Int16sb, "version" / Int16sb, "correlation_id" / Int32sb)
REQUEST_HEADER_V1 = Struct(*REQUEST_HEADER_V0.subcons, "client_id" / CLIENT_ID)
REQUEST_HEADER_V2 = Struct(*REQUEST_HEADER_V1.subcons, "tags" / TAG_SECTION)
REQUEST_HEADERS = (REQUEST_HEADER_V0, REQUEST_HEADER_V1, REQUEST_HEADER_V2)

RESPONSE_HEADER_V0 = Struct("correlation_id" / Int32sb)
RESPONSE_HEADER_V1 = Struct(*RESPONSE_HEADER_V0.subcons, "tags" / TAG_SECTION)
RESPONSE_HEADERS = (RESPONSE_HEADER_V0, RESPONSE_HEADER_V1)

COMPRESSION = Enum(BitsInteger(3), none=0, gzip=1, snappy=2, lz4=3, zstd=4)
TIMESTAMP_TYPE = Enum(BitsInteger(1), create_time=0, log_append_time=1)

ATTRIBUTES = BitStruct(
    Padding(9),
    "has_delete_horizon" / Flag,
    "is_control" / Flag,
    "is_transactional" / Flag,
    "timestamp_type" / TIMESTAMP_TYPE,
    "compression" / COMPRESSION,
)

BATCH_OVERHEAD = 49
"""Bytes of the batch header that are included in its size field."""

RECORD_BATCH = Struct(
    "base_offset" / Int64sb,
    "size" / Rebuild(Int32sb, len_(this.records) + BATCH_OVERHEAD),
    "leader_epoch" / Int32sb,
    "magic" / Const(2, Int8sb),
    "crc" / Int32ub,
    "attributes" / ATTRIBUTES,
    "last_offset_delta" / Int32sb,
    "base_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "base_sequence" / Int32sb,
    "records_count" / Int32sb,
    "records" / Bytes(this.size - BATCH_OVERHEAD),
)
"""A batch with its records still compressed."""

RECORD_BATCHES = GreedyRange(RECORD_BATCH)
"""A truncated last batch is omitted."""

RECORD_HEADER = Struct("name" / nullable(ZigZag), "value" / nullable(ZigZag))

RECORD_BODY = Struct(
    "attributes" / Int8sb,
    "timestamp_delta" / ZigZag,
    "offset_delta" / ZigZag,
    "key" / nullable(ZigZag),
    "value" / nullable(ZigZag),
    "headers" / PrefixedArray(ZigZag, RECORD_HEADER),
)
RECORD = Prefixed(ZigZag, RECORD_BODY)


def records(count: int) -> Construct:
    return Array(count, RECORD)


CONTROL_RECORD_TYPES = {
    "abort": 0,
    "commit": 1,
    "leader_change": 2,
    "snapshot_header": 3,
    "snapshot_footer": 4,
    "kraft_version": 5,
    "kraft_voters": 6,
}

CONTROL_RECORD_KEY = Struct(
    "version" / Int16sb,
    "type" / Enum(Int16sb, **CONTROL_RECORD_TYPES),
)

END_TXN_MARKER = Struct("version" / Int16sb, "coordinator_epoch" / Int32sb)

LEGACY_MESSAGE = Struct(
    "offset" / Int64sb,
    "size" / Int32sb,
    "crc" / Int32ub,
    "magic" / Int8sb,
    "_known" / Check((this.magic == 0) | (this.magic == 1)),
    "attributes" / BitStruct(Padding(4), "timestamp_type" / TIMESTAMP_TYPE, "compression" / COMPRESSION),
    "timestamp" / If(this.magic == 1, Int64sb),
    "key" / nullable(Int32sb),
    "value" / nullable(Int32sb),
)
"""Message of magic 0 or 1. The value of a compressed wrapper is a message set."""


def plain(value: Any) -> Any:
    """Convert to plain dictionaries, lists and scalars, for comparison."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if not str(key).startswith("_")}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value
