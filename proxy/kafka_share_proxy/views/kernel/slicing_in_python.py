"""The filter kernel in Python: it does the same as `_slicing.c`, byte for byte, where no compiler was available.

Tests and a fuzzer compare the C code with it.

In the header, size, checksum, number of records, and the codec bits change. Offsets and timestamps of records are
relative to the header, so base offset and base timestamp stay (the latter is the delete horizon if attribute bit 6 is
set). The last offset delta stays until a filler follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from struct import Struct

from kafka_share_proxy.views.model.slots import Cut
from kafka_share_proxy.wire.codec.varints import read_varlong
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.records import COMPRESSION_MASK, HEADER, LOG_OVERHEAD

RECORD_MIN = 7
"""Bytes of the smallest record."""
HEADER_MIN = 2
"""Bytes of the smallest record header: two lengths."""
OFFSET_MAX = (1 << 63) - 1

_REBUILT = Struct(">qiibIh")
"""The changed header fields and those between."""
_COUNT_AT = HEADER.size - 4
_COUNT = Struct(">i")

Part = tuple[memoryview | bytes | None, int, int]
"""The batch (None if no record is kept), offset of the last kept record or -1, number of records."""


def split(
    batch: memoryview, body: bytes | memoryview | None, cut: Cut, slots: Sequence[int], from_offset: int
) -> list[Part]:
    """Return the part of a batch for each slot. `body`: decompressed records, None if they are not compressed.

    Raises ValueError if `batch` is no record batch of magic 2.
    """
    try:
        return _split(batch, body, cut, slots, from_offset)
    except IndexError as error:
        raise ValueError("a record ends too early") from error
    except (RemoteProtocolError, struct.error) as error:
        raise ValueError(str(error)) from error


def _split(
    batch: memoryview, body: bytes | memoryview | None, cut: Cut, slots: Sequence[int], from_offset: int
) -> list[Part]:
    if len(batch) < HEADER.size:
        raise ValueError(f"a record batch of {len(batch)} bytes")
    base_offset, length, _, magic, _, _, delta, _, _, _, _, _, count = HEADER.unpack_from(batch)
    if magic != 2 or length + LOG_OVERHEAD != len(batch):
        raise ValueError(f"a record batch of magic {magic} and size {length} in {len(batch)} bytes")
    if base_offset < 0 or delta < 0 or count < 0 or base_offset > OFFSET_MAX - delta:
        raise ValueError(f"a record batch of {count} records at offset {base_offset} with last offset delta {delta}")
    if not records.has_valid_checksum(batch):
        raise ValueError(f"the checksum of the record batch at offset {base_offset} is wrong")
    data = bytes(batch[HEADER.size :]) if body is None else bytes(body)
    if count * RECORD_MIN > len(data):
        raise ValueError(f"{count} records cannot be in {len(data)} bytes")
    slot_records: dict[int, list[bytes]] = {slot: [] for slot in slots}
    last: dict[int, int] = dict.fromkeys(slots, -1)
    for start, end, offset_delta, key in _walk(data, count, delta):
        offset = base_offset + offset_delta
        slot = cut.slot_of(key, offset)
        if offset >= from_offset and slot in slot_records:
            slot_records[slot].append(data[start:end])
            last[slot] = max(last[slot], offset)
    return [(_assembled(batch, slot_records[slot], count), last[slot], len(slot_records[slot])) for slot in slots]


def _assembled(batch: memoryview, encoded_records: list[bytes], count: int) -> memoryview | bytes | None:
    if not encoded_records:
        return None
    return batch if len(encoded_records) == count else rebuilt(batch, b"".join(encoded_records), len(encoded_records))


def rebuilt(batch: memoryview | bytes, body: bytes, count: int, codec: int = 0) -> bytes:
    """Build a batch with the header of another and a valid checksum."""
    base_offset, _, epoch, magic, _, attributes = _REBUILT.unpack_from(batch)
    attributes = attributes & ~COMPRESSION_MASK | codec
    size = HEADER.size - LOG_OVERHEAD + len(body)
    front = _REBUILT.pack(base_offset, size, epoch, magic, 0, attributes)
    middle = bytes(batch[_REBUILT.size : _COUNT_AT])
    return records.seal(b"".join((front, middle, _COUNT.pack(count), body)))


def _walk(data: bytes, count: int, delta_max: int) -> Iterator[tuple[int, int, int, bytes | None]]:
    """Yield start, end, offset delta and key of each record. Raises ValueError if a record is invalid."""
    position = 0
    for _ in range(count):
        start = position
        length, position = read_varlong(data, position)
        end = position + length
        if not position < end <= len(data):
            raise ValueError(f"a record of {length} bytes, {len(data) - position} are left")
        _, position = read_varlong(data, position + 1)
        offset_delta, position = read_varlong(data, position)
        if not 0 <= offset_delta <= delta_max:
            raise ValueError(f"a record at offset delta {offset_delta}, the last of its batch is {delta_max}")
        key, position = _sized(data, position, end)
        _, position = _sized(data, position, end)
        headers, position = read_varlong(data, position)
        if not 0 <= headers * HEADER_MIN <= end - position:
            raise ValueError(f"{headers} record headers cannot be in {end - position} bytes")
        for _ in range(headers):
            name, position = _sized(data, position, end)
            _, position = _sized(data, position, end)
            if name is None:
                raise ValueError("a record header without a name")
        if position != end:
            raise ValueError("a record does not end where its length says")
        yield start, end, offset_delta, key
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes after the last record of a batch")


def _sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Return the bytes after a length (None for -1), and the position after them."""
    length, position = read_varlong(data, position)
    if length == -1:
        return None, position
    stop = position + length
    if not position <= stop <= end:
        raise ValueError(f"a length of {length} in a record, {end - position} bytes are left")
    return data[position:stop], stop
