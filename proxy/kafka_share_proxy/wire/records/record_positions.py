"""Positions of the records in one batch of magic 2, as columns of numbers without an object for each record.

The C extension `wire.records._record_positions` finds them in one pass, or the Python fallback here; `KERNEL` names the
one in use. Rules: wire/README.md 22 to 25.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator
from struct import calcsize
from typing import Any, Literal, TypeVar

from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.codec.varints import read_varlong
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records.key_hash import hash_of_record, murmur64
from kafka_share_proxy.wire.records.record_headers import RecordHeaders, after_headers, sized

try:
    from kafka_share_proxy.wire.records import _record_positions
except ImportError:  # no compiler was available at installation
    _record_positions = None  # type: ignore[assignment]

BUILT_VERSION = 6
"""`VERSION` of the extension that matches this file. An extension built from an older source is not used."""

RECORD_MIN = 7
"""Bytes of the smallest record."""
COLUMNS: tuple[Literal["q", "i"], ...] = ("q", "q", "i", "i", "i", "i", "i", "i")
"""Formats of the columns for `memoryview.cast`: offset, timestamp, start and size of the key, start and size of the
value, start and number of the headers.
"""
STARTS = (2, 4, 6)
ROW_BYTES = sum(map(calcsize, COLUMNS))
"""Bytes of one record in all columns."""
_BEGINS = tuple(sum(map(calcsize, COLUMNS[:number])) for number in range(len(COLUMNS)))

INT32_MAX = (1 << 31) - 1
Built = TypeVar("Built", bound=tuple[Any, ...])


class RecordPositions:
    """Columns of numbers, one row for each record, by ascending offset.

    Each column is a memoryview of native numbers over shared memory. Starts are byte positions in the records area.
    """

    __slots__ = ("_columns", "first", "last")

    def __init__(self, columns: bytes = b"", first: int = 0, last: int | None = None) -> None:
        self._columns = columns
        self.first = first
        self.last = len(columns) // ROW_BYTES if last is None else last

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: slice) -> RecordPositions:
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError("positions of records have no other order")
        return RecordPositions(self._columns, self.first + start, self.first + max(start, stop))

    @property
    def offsets(self) -> memoryview:
        """Offset of each record, int64."""
        return self.column(0)

    @property
    def timestamps(self) -> memoryview:
        """Milliseconds since 1970, int64 (KIP-32)."""
        return self.column(1)

    @property
    def key_starts(self) -> memoryview:
        return self.column(2)

    @property
    def key_sizes(self) -> memoryview:
        """Bytes, int32; -1 for null."""
        return self.column(3)

    @property
    def value_starts(self) -> memoryview:
        return self.column(4)

    @property
    def value_sizes(self) -> memoryview:
        """Bytes, int32; -1 for null."""
        return self.column(5)

    @property
    def headers_starts(self) -> memoryview:
        """Positions after the number of headers, int32."""
        return self.column(6)

    @property
    def headers_counts(self) -> memoryview:
        """Number of headers of each record, int32."""
        return self.column(7)

    @property
    def columns(self) -> bytes:
        """All columns, which slices share."""
        return self._columns

    def column(self, number: int) -> memoryview:
        rows = len(self._columns) // ROW_BYTES
        begin, size = _BEGINS[number] * rows, calcsize(COLUMNS[number])
        return memoryview(self._columns)[begin : begin + size * rows].cast(COLUMNS[number])[self.first : self.last]

    def build(
        self, area: Buffer, record_type: type[Built], timestamp_type: int, origin: tuple[Hashable, ...] = ()
    ) -> list[Built]:
        """Build a record for each row.

        Args:
            area: the bytes in which the records were found; ValueError for other bytes.
            record_type: a tuple of `origin`, key, value, headers, timestamp, offset, timestamp type.
            timestamp_type: the timestamp type of all records.
            origin: the first fields of all records: numbers and strings.
        """
        return _build(area, self._columns, self.first, self.last, record_type, timestamp_type, RecordHeaders, origin)

    def iterate(
        self,
        area: Buffer,
        record_type: type[Built],
        timestamp_type: int,
        origin: tuple[Hashable, ...] = (),
        after: Iterator[Built] | None = None,
    ) -> Iterator[Built]:
        """Iterate over the records that `build` returns.

        Args:
            area: as `build`.
            record_type: as `build`.
            timestamp_type: as `build`.
            origin: as `build`.
            after: result of an earlier call. Its records are returned after these, and no longer by itself.

        Raises:
            ValueError: as `build`, here or by the iterator.
        """
        rows = (area, self._columns, self.first, self.last)
        return _records(*rows, record_type, timestamp_type, RecordHeaders, origin, after)

    def key_hashes(self, area: Buffer) -> memoryview:
        """Return uint32 hashes (`key_hash.hash_of_record`).

        Raises ValueError if the records were found in other bytes.
        """
        return memoryview(_hashes(area, self._columns, self.first, self.last)).cast("I")

    def order_keys(self, area: Buffer) -> tuple[bytes, bytes]:
        """Return the offsets (native int64) and hashes (native uint64, `key_hash.murmur64`) of the records with a key.

        Raises ValueError if the records were found in other bytes.
        """
        return _order_keys(area, self._columns, self.first, self.last)


def find(
    area: Buffer, count: int, base_offset: int, last_offset: int, base_timestamp: int, append_time: int | None = None
) -> RecordPositions:
    """Find the records of one batch of magic 2 (wire/README.md rule 23).

    Args:
        area: the decompressed bytes after the header of the batch.
        count: number of records in the header.
        base_offset: first offset of the batch.
        last_offset: last offset of the batch.
        base_timestamp: the timestamp to which the producer's deltas are added.
        append_time: milliseconds since 1970 if the broker sets the timestamps; None if the producer does.

    Raises RemoteProtocolError if the bytes are not `count` records. The text names the first invalid record.
    """
    try:
        columns = _find(area, count, base_offset, last_offset, base_timestamp, append_time)
    except ValueError as error:
        raise RemoteProtocolError(f"the record batch at offset {base_offset}: {error}") from error
    return RecordPositions(columns)


# Python fallback of the extension

_LENGTH = "its length is not positive, or exceeds the remaining bytes"
_TIMESTAMP = "its timestamp does not fit into it"
_OFFSET = "its offset is not within the batch"
_KEY = "its key does not fit into it"
_VALUE = "its value does not fit into it"
_HEADERS = "its headers do not end where it ends"
_AFTER = "bytes follow the last record"


class _Misfit(Exception):
    pass


def _python_find(
    area: Buffer, count: int, base_offset: int, last_offset: int, base_timestamp: int, append_time: int | None
) -> bytes:
    _check(len(area), count, base_offset, last_offset)
    data, number, position, before = bytes(area), 0, 0, base_offset - 1
    columns = [array(code) for code in COLUMNS]
    try:
        while number < count:
            record, start, position = _next(data, position)
            timestamp, delta, *columns_read = _read(record, start, last_offset - base_offset)
            if base_offset + delta > before:
                before = base_offset + delta
                timestamp = _wrapped(base_timestamp + timestamp) if append_time is None else append_time
                for column, value in zip(columns, (before, timestamp, *columns_read), strict=True):
                    column.append(value)
            number += 1
        if position != len(data):
            raise _Misfit(_AFTER)
    except _Misfit as misfit:
        raise ValueError(f"record {number} (from 0): {misfit}") from misfit
    return b"".join([column.tobytes() for column in columns])


def _check(size: int, count: int, base_offset: int, last_offset: int) -> None:
    if not 0 <= count <= INT32_MAX or last_offset < base_offset:
        raise ValueError("offsets or a count that no batch has")
    if size > INT32_MAX:
        raise ValueError("records of more than 2 GiB")
    if base_offset < 0 or last_offset - base_offset > INT32_MAX:
        raise ValueError("offsets that no batch has")
    if count * RECORD_MIN > size:
        raise ValueError(f"{count} records cannot be in {size} bytes")


def _next(data: bytes, position: int) -> tuple[bytes, int, int]:
    """Return the record without its length, its position, and the position after it."""
    try:
        length, position = read_varlong(data, position)
    except (IndexError, RemoteProtocolError) as error:
        raise _Misfit(_LENGTH) from error
    if not 1 <= length <= len(data) - position:
        raise _Misfit(_LENGTH)
    return data[position : position + length], position, position + length


def _read(record: bytes, start: int, delta_max: int) -> tuple[int, ...]:
    reading = _TIMESTAMP
    try:
        timestamp, position = read_varlong(record, 1)
        reading = _OFFSET
        delta, position = read_varlong(record, position)
        if not 0 <= delta <= delta_max:
            raise _Misfit(_OFFSET)
        reading = _KEY
        key, key_start = sized(record, position)
        reading = _VALUE
        value, value_start = sized(record, key_start + max(key, 0))
        reading = _HEADERS
        headers, headers_start = read_varlong(record, value_start + max(value, 0))
        if after_headers(record, headers_start, headers) != len(record):
            raise _Misfit(_HEADERS)
    except (IndexError, RemoteProtocolError) as error:
        raise _Misfit(reading) from error
    return timestamp, delta, start + key_start, key, start + value_start, value, start + headers_start, headers


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _python_build(
    area: Buffer,
    columns: bytes,
    first: int,
    last: int,
    record_type: type[Built],
    timestamp_type: int,
    headers_type: Any,
    origin: tuple[Hashable, ...],
) -> list[Built]:
    _check_rows(columns, first, last)
    rows = RecordPositions(columns, first, last)
    data = bytes(area)
    records = []
    for offset, timestamp, key, key_size, value, value_size, start, count in zip(
        *(rows.column(number) for number in range(len(COLUMNS))), strict=True
    ):
        headers = _headers(data, start, count, headers_type)
        fields = (_content(data, key, key_size), _content(data, value, value_size), headers, timestamp, offset)
        records.append(tuple.__new__(record_type, (*origin, *fields, timestamp_type)))
    return records


def _python_records(
    area: Buffer,
    columns: bytes,
    first: int,
    last: int,
    record_type: type[Built],
    timestamp_type: int,
    headers_type: Any,
    origin: tuple[Hashable, ...],
    after: Iterator[Built] | None,
) -> Iterator[Built]:
    built = _python_build(area, columns, first, last, record_type, timestamp_type, headers_type, origin)
    return iter(built + list(after or ()))


def _python_hashes(area: Buffer, columns: bytes, first: int, last: int) -> bytes:
    _check_rows(columns, first, last)
    rows, data = RecordPositions(columns, first, last), bytes(area)
    keys = (_content(data, start, size) for start, size in zip(rows.key_starts, rows.key_sizes, strict=True))
    return array("I", map(hash_of_record, keys, rows.offsets)).tobytes()


def _python_order_keys(area: Buffer, columns: bytes, first: int, last: int) -> tuple[bytes, bytes]:
    _check_rows(columns, first, last)
    rows, data = RecordPositions(columns, first, last), bytes(area)
    offsets, hashes = array("q"), array("Q")
    for offset, start, size in zip(rows.offsets, rows.key_starts, rows.key_sizes, strict=True):
        key = _content(data, start, size)
        if key is not None:
            offsets.append(offset)
            hashes.append(murmur64(key))
    return offsets.tobytes(), hashes.tobytes()


def _check_rows(columns: bytes, first: int, last: int) -> None:
    if len(columns) % ROW_BYTES or not 0 <= first <= last <= len(columns) // ROW_BYTES:
        raise ValueError("no such rows")


def _content(data: bytes, start: int, size: int) -> bytes | None:
    if size < 0:
        return None
    if not 0 <= start <= len(data) - size:
        raise ValueError(_ELSEWHERE)
    return data[start : start + size]


def _headers(data: bytes, start: int, count: int, headers_type: Any) -> Any:
    if count == 0:
        return ()
    if not 0 <= start <= len(data):
        raise ValueError(_ELSEWHERE)
    try:
        return headers_type(data[start : after_headers(data, start, count)], count)
    except (IndexError, RemoteProtocolError) as error:
        raise ValueError(_ELSEWHERE) from error


_ELSEWHERE = "positions that are not of these bytes"

KERNEL = kernels.choose("wire.records._record_positions", _record_positions, BUILT_VERSION)
EXTENSION = _record_positions if KERNEL == "c" else None
room: Callable[[int], bytearray] = bytearray if EXTENSION is None else EXTENSION.room
"""Returns a bytearray to be filled. With the extension it contains any bytes: clearing 4 MiB costs half as much as
receiving them.
"""
_find: Callable[[Buffer, int, int, int, int, int | None], bytes]
_find = _python_find if EXTENSION is None else EXTENSION.find
_build = _python_build if EXTENSION is None else EXTENSION.build
_records = _python_records if EXTENSION is None else EXTENSION.records
_hashes: Callable[[Buffer, bytes, int, int], bytes]
_hashes = _python_hashes if EXTENSION is None else EXTENSION.hashes
_order_keys: Callable[[Buffer, bytes, int, int], tuple[bytes, bytes]]
_order_keys = _python_order_keys if EXTENSION is None else EXTENSION.order_keys
