"""Where a Produce request says how many acknowledgements it wants: with 0 there will be no answer.

The position depends on the version (request header, transactional id); which fields stand before `Acks` is taken from
the schema, so a new version that moves it is noticed when the layout is made, not on the wire.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from proxy.wire import specs
from proxy.wire.errors import LocalProtocolError, RemoteProtocolError

HEAD_MAX = 128 << 10
"""Bytes of a Produce request in which `Acks` must stand; more than the longest client and transactional id take."""

_FIXED = 12
"""Size, key, version, correlation id."""

_INT16 = struct.Struct(">h").unpack_from


class AcksLayout(NamedTuple):
    """What stands between the correlation id and `Acks` in one version."""

    flexible: bool
    """Header with a tag section, compact strings."""
    strings: int
    """Nullable strings of the body before `Acks` (the transactional id)."""


def acks_layout(version: int) -> AcksLayout:
    """The layout of one version of ProduceRequest.

    Raises:
        LocalProtocolError: the schema has put something before `Acks` that is not known here.
    """
    message = specs.load("ProduceRequest")
    strings = 0
    for field in message.root.fields:
        if version not in field.versions or field.is_tagged(version):
            continue
        if field.name == "Acks":
            return AcksLayout(flexible=version in message.flexible, strings=strings)
        if field.type != "string" or field.is_array:
            raise LocalProtocolError(f"ProduceRequest v{version}: {field.name} stands before Acks")
        strings += 1
    raise LocalProtocolError(f"ProduceRequest v{version} has no Acks")


def read_acks(layout: AcksLayout, buffer: memoryview, at: int, end: int) -> int | None:
    """`Acks` of the Produce request whose size stands at `at`; None when what has come does not reach it yet.

    Args:
        layout: of its version.
        buffer: may hold anything behind `end`.
        at: where it begins.
        end: where what has come of it ends, at most its own end.

    Raises:
        RemoteProtocolError: it cannot stand within HEAD_MAX, or a length is impossible.
    """
    frame = buffer[at:end]
    acks: int
    try:
        behind = _skip_to_acks(layout, frame)
        if behind > HEAD_MAX:
            raise RemoteProtocolError("Produce request whose acks stand too far behind")
        acks = _INT16(frame, behind)[0]
    except (IndexError, struct.error):
        return None
    return acks


def _skip_to_acks(layout: AcksLayout, buffer: memoryview) -> int:
    at = _skip_string(buffer, _FIXED)  # the client id is an old-style string in every header version
    if layout.flexible:
        at = _skip_tags(buffer, at)
        for _ in range(layout.strings):
            length, at = _unsigned(buffer, at)
            at += max(length - 1, 0)
        return at
    for _ in range(layout.strings):
        at = _skip_string(buffer, at)
    return at


def _skip_string(buffer: memoryview, at: int) -> int:
    length: int = _INT16(buffer, at)[0]
    if length < 0:
        if length < -1:
            raise RemoteProtocolError(f"Produce request with a string of {length} bytes")
        length = 0
    return at + 2 + length


def _skip_tags(buffer: memoryview, at: int) -> int:
    if not buffer[at]:
        return at + 1
    count, at = _unsigned(buffer, at)
    if count > HEAD_MAX:
        raise RemoteProtocolError(f"Produce request with {count} tagged fields in its header")
    for _ in range(count):
        _, at = _unsigned(buffer, at)
        length, at = _unsigned(buffer, at)
        at += length
    return at


def _unsigned(buffer: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise RemoteProtocolError("Produce request with a varint of more than 5 bytes")
