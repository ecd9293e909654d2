"""Signed (zigzag) varints, used in records for lengths and deltas."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.wire.errors import RemoteProtocolError

_BITS_MAX = 64


def varlong(value: int) -> bytes:
    """Encode a number of at most 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return bytes((zigzag,))
    parts = bytearray()
    while zigzag >= 0x80:
        parts.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    parts.append(zigzag)
    return bytes(parts)


def read_varlong(buffer: Any, position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises RemoteProtocolError if it has more than 64 bits, IndexError if the buffer ends within it.
    """
    zigzag = 0
    for shift in range(0, _BITS_MAX + 6, 7):
        byte = buffer[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> _BITS_MAX:
                break
            return (zigzag >> 1) ^ -(zigzag & 1), position
    raise RemoteProtocolError("a varint has more than 64 bits")
