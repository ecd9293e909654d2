"""Conversion of messages of magic 0 and 1 to batches of magic 2.

Brokers before 4.0 serve such messages from segments that were never rewritten. Source: LegacyRecord and
AbstractLegacyRecordBatch of Kafka's clients.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from struct import Struct

from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import compression, records
from kafka_share_proxy.wire.records.records import (
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    Record,
)

_START = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC_FROM = 16
_ATTRIBUTES_AT = 22
"""Position of the lower byte of the attributes in a batch of magic 2."""

Message = tuple[int, int, int, int, bytes | None, bytes | None]
"""Offset, magic, attributes, timestamp, key, value."""


def as_batch(message: memoryview, decompressed_max: int) -> bytes:
    """Convert one message, or one compressed wrapper, to an uncompressed batch of magic 2.

    Raises RemoteProtocolError if the bytes are not such a message, or it is too large when decompressed, or
    CodecMissing.
    """
    messages = list(_messages(bytes(message)))
    if len(messages) != 1:
        raise RemoteProtocolError(f"{len(messages)} messages where one was to be")
    offset, magic, attributes, timestamp, key, value = messages[0]
    is_append_time = magic == 1 and bool(attributes & TIMESTAMP_TYPE_MASK)
    if not attributes & COMPRESSION_MASK:
        converted = [Record(key, value, (), timestamp, offset)]
    else:
        converted = list(_unwrapped(offset, magic, attributes, value, decompressed_max))
        if is_append_time:
            converted = [record._replace(timestamp=timestamp) for record in converted]
    _check_offsets([record.offset for record in converted], offset)
    batch = bytearray(records.build_batch(converted[0].offset, converted, last_offset=offset))
    if is_append_time:
        batch[_ATTRIBUTES_AT] |= TIMESTAMP_TYPE_MASK
    return records.seal(bytes(batch))


def _check_offsets(offsets: list[int], last: int) -> None:
    if not offsets or not 0 <= min(offsets) == offsets[0] <= max(offsets) == last < offsets[0] + (1 << 31):
        raise RemoteProtocolError(f"a compressed message at offset {last} with {len(offsets)} others of other offsets")


def _unwrapped(
    offset: int, magic: int, attributes: int, value: bytes | None, decompressed_max: int
) -> Iterator[Record]:
    if value is None:
        raise RemoteProtocolError("a compressed message without a value")
    codec = attributes & COMPRESSION_MASK
    if codec == compression.LZ4 and magic == 0:
        value = mended(value)
    inner = list(_messages(bytes(compression.decompress(codec, value, decompressed_max))))
    if any(one[1] != magic or one[2] & COMPRESSION_MASK for one in inner):
        raise RemoteProtocolError("a compressed message holds one of another magic, or another compressed one")
    shift = offset - inner[-1][0] if magic == 1 and inner else 0  # inner offsets of magic 1 are relative (KIP-31)
    for inner_offset, _, _, timestamp, key, content in inner:
        yield Record(key, content, (), timestamp, inner_offset + shift)


def _messages(data: bytes) -> Iterator[Message]:
    position = 0
    while position < len(data):
        try:
            offset, size, checksum, magic, attributes = _START.unpack_from(data, position)
            end = position + LOG_OVERHEAD + size
            if magic not in (0, 1) or not position + _START.size <= end <= len(data):
                raise RemoteProtocolError(f"a message of magic {magic} and size {size}")
            if zlib.crc32(data[position + _CRC_FROM : end]) != checksum:
                raise RemoteProtocolError(f"the checksum of the message at offset {offset} is wrong")
            position += _START.size
            timestamp = NO_TIMESTAMP
            if magic == 1:
                timestamp = _TIMESTAMP.unpack_from(data, position)[0]
                position += _TIMESTAMP.size
            key, position = _sized(data, position, end)
            value, position = _sized(data, position, end)
        except struct.error as error:
            raise RemoteProtocolError("a message ends too early") from error
        if position != end:
            raise RemoteProtocolError("a message does not end where its size says")
        yield offset, magic, attributes, timestamp, key, value


def _sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = _LENGTH.unpack_from(data, position)[0]
    position += _LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise RemoteProtocolError(f"a length of {length} in a message, {end - position} bytes are left")
    return data[position : position + length], position + length


_FLAGS_AT = 4
_HAS_SIZE = 0x08
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def mended(frame: bytes) -> bytes:
    """Correct the header checksum of an LZ4 frame: clients of the time of magic 0 computed it incorrectly."""
    if len(frame) <= _FLAGS_AT:
        return frame
    at = _FLAGS_AT + (10 if frame[_FLAGS_AT] & _HAS_SIZE else 2)
    return frame[:at] + bytes((_xxh32(frame[_FLAGS_AT:at]) >> 8 & 0xFF,)) + frame[at + 1 :]


def _xxh32(data: bytes) -> int:
    """Return the XXH32 of fewer than 16 bytes, with seed 0."""
    mask = 0xFFFFFFFF
    value = _PRIMES[4] + len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = value + word * _PRIMES[2] & mask
        value = (value << 17 | value >> 15) * _PRIMES[3] & mask
    for byte in data[whole:]:
        value = value + byte * _PRIMES[4] & mask
        value = (value << 11 | value >> 21) * _PRIMES[0] & mask
    value = (value ^ value >> 15) * _PRIMES[1] & mask
    value = (value ^ value >> 13) * _PRIMES[2] & mask
    return value ^ value >> 16
