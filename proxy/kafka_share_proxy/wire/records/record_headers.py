"""Headers of one record, decoded at first access, because most consumers never read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from kafka_share_proxy.wire.codec.varints import read_varlong
from kafka_share_proxy.wire.errors import RemoteProtocolError

Header = tuple[str, bytes | None]

HEADER_MIN = 2
"""Bytes of the smallest record header: two lengths."""


class RecordHeaders(Sequence[Header]):
    """Headers of one record, in the producer's order. Equal to a tuple with the same items (wire/README.md rule 25).

    Names are UTF-8; other bytes in them become U+FFFD, as in Kafka's Java client (RecordHeader, Utils.utf8).
    """

    __slots__ = ("_count", "_decoded", "_raw")

    def __init__(self, raw: bytes, count: int) -> None:
        """`raw`: encoded headers, of which the caller has checked all lengths."""
        self._raw = raw
        self._count = count
        self._decoded: tuple[Header, ...] | None = None

    @property
    def _all(self) -> tuple[Header, ...]:
        if self._decoded is None:
            self._decoded, self._raw = _decoded(self._raw, self._count), b""
        return self._decoded

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Header: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Header, ...]: ...
    def __getitem__(self, index: int | slice) -> Header | tuple[Header, ...]:
        return self._all[index]

    def __iter__(self) -> Iterator[Header]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        return self._all == (other._all if isinstance(other, RecordHeaders) else other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


def _decoded(raw: bytes, count: int) -> tuple[Header, ...]:
    decoded_headers, position = [], 0
    for _ in range(count):
        size, position = sized(raw, position)
        name, position = raw[position : position + size], position + size
        size, position = sized(raw, position)
        value = None if size < 0 else raw[position : position + size]
        decoded_headers.append((name.decode(errors="replace"), value))
        position += max(size, 0)
    return tuple(decoded_headers)


def after_headers(data: bytes, position: int, count: int) -> int:
    """Return the position after unchecked headers.

    Raises RemoteProtocolError if the headers do not fit, IndexError if the bytes end within a varint.
    """
    if not 0 <= count * HEADER_MIN <= len(data) - position:
        raise RemoteProtocolError(f"{count} record headers cannot be in {len(data) - position} bytes")
    for _ in range(count):
        name_size, position = sized(data, position)
        if name_size < 0:
            raise RemoteProtocolError("a record header without a name")
        value_size, position = sized(data, position + name_size)
        position += max(value_size, 0)
    return position


def sized(data: bytes, position: int) -> tuple[int, int]:
    """Return a length (-1 for null) and the position after it. That many bytes are present.

    Raises RemoteProtocolError if the length is invalid, IndexError if the bytes end within it.
    """
    size, position = read_varlong(data, position)
    if not -1 <= size <= len(data) - position:
        raise RemoteProtocolError(f"a length of {size} in a record, {len(data) - position} bytes are left")
    return size, position
