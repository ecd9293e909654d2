"""Helpers that generated code calls: unsigned varints, tag sections, integer arrays, and errors."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from kafka_share_proxy.wire.errors import LocalProtocolError, RemoteProtocolError, TooManyElements

ELEMENTS_MAX = 1_000_000
"""Maximum number of elements in one array."""
TAGS_MAX = 1_000
"""Maximum number of tagged fields in one structure."""
STRING_MAX = 0x7FFF
"""Maximum bytes of one string (an int16)."""

_CACHED_STRUCTS = 256
"""Maximum length of integer arrays whose Struct is cached."""

Buffer = bytes | bytearray | memoryview

Tags = tuple[tuple[int, bytes], ...]
"""Unknown tagged fields of one structure, unchanged."""


def read_uvarint(buffer: Any, position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises RemoteProtocolError if it is longer than five bytes or 32 bits, IndexError if the buffer ends within.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise RemoteProtocolError("a varint has more than 32 bits")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def string_uvarint(length_plus_one: int) -> bytes:
    """Raises LocalProtocolError if it is longer than a Kafka string may be."""
    if length_plus_one > STRING_MAX + 1:
        raise too_long(length_plus_one - 1)
    return uvarint(length_plus_one)


def read_tags(buffer: Any, position: int, end: int) -> tuple[Tags, int]:
    """Return (tags, position after the section)."""
    count, position = read_uvarint(buffer, position)
    check_tags(count, end - position)
    tags = []
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        stop = position + size
        if stop > end:
            raise refusal("tagged field", size, end - position)
        tags.append((tag, bytes(buffer[position:stop])))
        position = stop
    return tuple(tags), position


def skip_tags(buffer: Any, position: int, end: int) -> int:
    """Return the position after the section."""
    count, position = read_uvarint(buffer, position)
    check_tags(count, end - position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
    if position > end:
        raise RemoteProtocolError("a tagged field is longer than the message")
    return position


def check_count(part: str, count: int, count_max: int, size: int, remaining: int) -> None:
    """Raise RemoteProtocolError if a count exceeds `count_max`, or the remaining bytes."""
    if count > count_max or count * size > remaining:
        raise refusal(part, count, remaining)


def check_tags(count: int, remaining: int) -> None:
    """Raise RemoteProtocolError if the remaining bytes cannot hold this many tags."""
    if count > TAGS_MAX or 2 * count > remaining:
        raise refusal("number of tagged fields", count, remaining)


def write_tags(append: Callable[[bytes], object], known: list[tuple[int, bytes]], unknown: Tags) -> None:
    """Write known and unknown tags, merged in the order of the tags."""
    tags = sorted((*known, *unknown), key=_tag_of)
    append(uvarint(len(tags)))
    for tag, data in tags:
        append(uvarint(tag) + uvarint(len(data)))
        append(data)


def _tag_of(tagged: tuple[int, bytes]) -> int:
    return tagged[0]


def refusal(part: str, length: int, remaining: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{part}: length {length} cannot be, {remaining} bytes are left")


def too_many() -> TooManyElements:
    return TooManyElements("more elements than are taken")


def too_long(length: int) -> LocalProtocolError:
    return LocalProtocolError(f"a string of {length} bytes is longer than {STRING_MAX}")


def mismatch(part: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{part}: the tagged field does not end where its size says")


def lacking(part: str) -> LocalProtocolError:
    return LocalProtocolError(f"{part} is set, but this version has no such field")


def bad_uuid(value: object) -> LocalProtocolError:
    """Return the error for an id that struct would silently pad or truncate."""
    return LocalProtocolError(f"not a uuid of 16 bytes: {value!r}")


class ArrayStructs(dict[int, Struct]):
    """Cache of the Struct for n numbers of one type after some fixed values."""

    def __init__(self, code: str, front: str = "") -> None:
        super().__init__()
        self._code = code
        self._front = front

    def __missing__(self, count: int) -> Struct:
        struct = Struct(f">{self._front}{count}{self._code}")
        if count <= _CACHED_STRUCTS:
            self[count] = struct
        return struct
