"""Record batches of one Fetch response as a table of their header fields, without an object for each batch.

A response of 4 MiB may have 50,000 batches, and walking them one by one would block the loop for a tenth of a second.
The C extension `wire.records._batches` builds the table, or the Python fallback here; `KERNEL` names the one in use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, Protocol, Self, overload

from kafka_share_proxy.wire import kernels
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.compression import NONE
from kafka_share_proxy.wire.records.records import BatchProperties

try:
    from kafka_share_proxy.wire.records import _batches
except ImportError:  # no compiler was available at installation
    _batches = None  # type: ignore[assignment]

BUILT_VERSION = 3
"""`VERSION` of the extension that matches this file. An older one is not used."""

ROW = Struct("<qqqqIIiihbx")
"""Fields of `Batch`, in their order. Proxies exchange rows in this format too."""
KEPT, ABORTED, MARKER = range(3)
"""Fate of a batch under read_committed: its records are returned, belong to an aborted transaction, or are a marker."""
_ONLY_MARKERS = bytes.maketrans(bytes((ABORTED, MARKER)), bytes((KEPT, ABORTED)))
"""Translation of fates so that `_ranges` returns the ranges of markers."""

_BASE_AT, _LAST_AT, _ATTRIBUTES_AT, _MAGIC_AT = 0, 8, 48, 50
"""Byte positions in a row."""
_OFFSET = Struct("<q")
_TRANSACTION = Struct("<qq")


class BatchFields(NamedTuple):
    """A row of a `BatchTable`, in the order of its bytes."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    """Milliseconds since 1970."""
    producer_id: int
    position: int
    size: int
    """Bytes including the offset and size fields."""
    leader_epoch: int
    records_count: int
    attributes: int
    magic: int


class Batch(BatchFields, BatchProperties):
    """Header of one batch. For magic 0 and 1, of one message, with Kafka's "none" for missing fields."""

    __slots__ = ()


class BatchOffsets(Protocol):
    """Offsets of a batch."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int:
        """Last offset, also when its record was compacted away."""


class AbortedTransaction(Protocol):
    """Entry of the aborted list of a Fetch response."""

    producer_id: int
    first_offset: int


class _PythonRows:
    """Python fallback of the extension's `Rows`: rows `first` to `last` of bytes that tables may share."""

    __slots__ = ("_bytes", "_first", "_last")
    _bytes: bytes
    _first: int
    _last: int

    def __new__(cls, rows: bytes) -> Self:
        """Raises ValueError if the bytes are not rows."""
        if len(rows) % ROW.size:
            raise ValueError(f"{len(rows)} bytes are no rows of {ROW.size} bytes")
        return cls._of(rows, 0, len(rows) // ROW.size)

    @classmethod
    def _of(cls, rows: bytes, first: int, last: int) -> Self:
        self = object.__new__(cls)
        self._bytes, self._first, self._last = rows, first, last
        return self

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Batch | Self:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("a table of batches has no other order")
            return self._of(self._bytes, self._first + start, self._first + max(start, stop))
        at = index + (self._last if index < 0 else self._first)
        if not self._first <= at < self._last:
            raise IndexError(index)
        return Batch._make(ROW.unpack_from(self._bytes, at * ROW.size))

    def first_from(self, offset: int, low: int = 0) -> int:
        """Return the index of the first batch, from `low` on, that begins at or after the offset."""
        return self._search(_BASE_AT, offset, low)

    def first_to(self, offset: int) -> int:
        """Return the index of the first batch that ends at or after the offset."""
        return self._search(_LAST_AT, offset, 0)

    def _search(self, column: int, offset: int, low: int) -> int:
        if not 0 <= low <= len(self):
            raise ValueError("a search outside the table")
        at = self._first * ROW.size + column
        return bisect_left(
            range(len(self)),
            offset,
            lo=low,
            key=lambda index: _OFFSET.unpack_from(self._bytes, at + index * ROW.size)[0],
        )

    def position(self, index: int) -> int:
        """Return where the batch at `index` begins, or for the number of batches where the last one ends."""
        if not 0 <= index <= len(self) or not len(self):
            raise IndexError(index)
        batch = self[index - 1] if index == len(self) else self[index]
        return batch.position + (batch.size if index == len(self) else 0)

    @property
    def rows(self) -> bytes:
        """Contiguous bytes of the rows."""
        return self._bytes[self._first * ROW.size : self._last * ROW.size]


KERNEL = kernels.choose("wire.records._batches", _batches, BUILT_VERSION)
_Rows = _PythonRows
if KERNEL == "c":
    _batches.return_items_as(Batch)
    _Rows = _batches.Rows  # type: ignore[misc,assignment]  # has the same methods


class BatchTable(_Rows, Sequence[Batch]):
    """Batches by ascending offset. A slice is a BatchTable too."""

    __slots__ = ()

    def __new__(cls, rows: bytes = b"") -> Self:
        """Raises RemoteProtocolError if the bytes are not rows."""
        try:
            return super().__new__(cls, rows)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from error

    def __iter__(self) -> Iterator[Batch]:
        return map(Batch._make, ROW.iter_unpack(self.rows))

    @property
    def records_count(self) -> int:
        """Number of records of all batches."""
        return _count(self.rows)

    @property
    def magics_and_attributes(self) -> Iterable[tuple[int, int]]:
        """Magic and lower byte of the attributes of each batch."""
        rows = self.rows
        return zip(rows[_MAGIC_AT :: ROW.size], rows[_ATTRIBUTES_AT :: ROW.size], strict=True)

    def widened(self, fetch_offset: int) -> BatchTable:
        """Return the table with the first offsets of compressed wrappers, as `split_complete` sets them."""
        return BatchTable(_widened(self.rows, fetch_offset))

    def fates(self, aborted: Iterable[AbortedTransaction] | None) -> bytes:
        """Return KEPT, ABORTED or MARKER for each batch (wire/README.md rule 16)."""
        listed = sorted((each.first_offset, each.producer_id) for each in aborted or ())
        return _fates(self.rows, b"".join([_TRANSACTION.pack(*each) for each in listed]))

    def aborted_ranges(self, aborted: Sequence[AbortedTransaction] | None) -> list[tuple[int, int]]:
        """Return the offsets (first, last) of batches of aborted transactions."""
        return _ranges(self.rows, self.fates(aborted)) if aborted else []

    def marker_ranges(self) -> list[tuple[int, int]]:
        """Return the offsets (first, last) of control batches."""
        fates = self.fates(())
        return _ranges(self.rows, fates.translate(_ONLY_MARKERS)) if MARKER in fates else []


def split_complete(buffer: Any, fetch_offset: int = -1) -> tuple[BatchTable, int]:
    """Return all complete batches and their size in bytes.

    Compressed wrappers of magic 0 and 1 contain only their last offset. Their first is the one after the preceding
    batch, or `fetch_offset`: otherwise it would look like a gap of compaction. -1: unchanged. Raises
    RemoteProtocolError if a size, magic or offset range is invalid.
    """
    try:
        rows, size = walk(buffer, fetch_offset)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from error
    return BatchTable(rows), size


def first_from(batches: Sequence[BatchOffsets], offset: int, low: int = 0) -> int:
    """Return the index of the first batch, from `low` on, that begins at or after the offset."""
    if isinstance(batches, BatchTable):
        return batches.first_from(offset, low)
    return bisect_left(batches, offset, lo=low, key=attrgetter("base_offset"))


def first_to(batches: Sequence[BatchOffsets], offset: int) -> int:
    """Return the index of the first batch that ends at or after the offset."""
    if isinstance(batches, BatchTable):
        return batches.first_to(offset)
    return bisect_left(batches, offset, key=attrgetter("last_offset"))


def _widened(rows: bytes, fetch_offset: int) -> bytes:
    magics = rows[_MAGIC_AT :: ROW.size]
    if fetch_offset < 0 or (b"\0" not in magics and b"\1" not in magics):
        return rows
    widened, after = [], fetch_offset
    for batch in BatchTable(rows):
        is_wrapper = batch.magic <= 1 and batch.compression != NONE
        widened.append(batch._replace(base_offset=min(batch.base_offset, after)) if is_wrapper else batch)
        after = batch.last_offset + 1
    return b"".join([ROW.pack(*batch) for batch in widened])


# Python fallback of the extension


def _python_walk(buffer: Any, fetch_offset: int) -> tuple[bytes, int]:
    rows, end = [], 0
    for header in records.iter_batches(buffer):
        end = header.end
        batch = Batch(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            position=header.position,
            size=header.size,
            leader_epoch=header.leader_epoch,
            records_count=header.records_count,
            attributes=header.attributes,
            magic=header.magic,
        )
        rows.append(ROW.pack(*batch))
    return _widened(b"".join(rows), fetch_offset), end


def _python_fates(rows: bytes, transactions: bytes) -> bytes:
    pending = list(_TRANSACTION.iter_unpack(transactions))[::-1]
    active: set[int] = set()
    fates = bytearray()
    for batch in BatchTable(rows):
        while pending and pending[-1][0] <= batch.last_offset:
            active.add(pending.pop()[1])
        is_active = batch.producer_id >= 0 and batch.producer_id in active
        if batch.is_control:
            fates.append(MARKER)
            if batch.records_count:
                active.discard(batch.producer_id)
        else:
            fates.append(ABORTED if batch.is_transactional and is_active else KEPT)
    return bytes(fates)


def _python_ranges(rows: bytes, fates: bytes) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    is_next = False
    for batch, fate in zip(BatchTable(rows), fates, strict=True):
        if fate != ABORTED:
            is_next = False
            continue
        if is_next and ranges[-1][1] + 1 == batch.base_offset:
            ranges[-1] = (ranges[-1][0], batch.last_offset)
        else:
            ranges.append((batch.base_offset, batch.last_offset))
        is_next = True
    return ranges


def _python_count(rows: bytes) -> int:
    return sum(batch.records_count for batch in BatchTable(rows))


walk: Callable[[Any, int], tuple[bytes, int]] = _batches.walk if KERNEL == "c" else _python_walk
"""`split_complete` with rows instead of a table. Raises ValueError."""
_fates = _batches.fates if KERNEL == "c" else _python_fates
_ranges = _batches.ranges if KERNEL == "c" else _python_ranges
_count = _batches.count if KERNEL == "c" else _python_count
