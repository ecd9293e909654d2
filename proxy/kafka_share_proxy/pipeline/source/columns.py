"""Arrow record batches from the positions of records: no object is made for a record (pipeline/README.md rules 14, 15).

Keys and values of neighbouring records are stored in one run of bytes. One binary array therefore tiles that run (bytes
between, key, bytes between, value), and `take` copies every second tile out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_share_proxy.pipeline.source import key_hashes
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.topic_ids import topic_id_text
from kafka_share_proxy.wire.values import MIB, ZERO_UUID, TopicPartition

ROWS_PER_BATCH = 8_192
"""Number of rows after which a record batch is made. Each record batch costs the JVM and this process about 0.3 ms."""
BYTES_PER_BATCH = 4 * MIB
"""Size in bytes after which a record batch is made."""

Array = np.ndarray[Any, Any]

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "key_hash": pa.int64(),
    "range_id": pa.int32(),
    "record_bytes": pa.int64(),
    "topic_id": pa.string(),
}
"""Arrow type of each column. Spark compares them exactly with the declared schema."""
SPARK_TYPES = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp", "timestampType": "int", "headers": "array<struct<key: string, value: binary>>",
    "key_hash": "bigint", "range_id": "int", "record_bytes": "bigint",
    "topic_id": "string",
}  # fmt: skip


class _Rows:
    """Positions of the records of several pieces, by column, in one area of bytes."""

    def __init__(self, pieces: Sequence[LazyRecords]) -> None:
        self.area, shifts = _one_area(pieces)
        self.timestamp_types = [(piece.timestamp_type, len(piece)) for piece in pieces]
        columns = [[np.asarray(piece.positions.column(number)) for piece in pieces] for number in range(8)]
        for number in (2, 4, 6):  # the starts of keys, values and headers
            columns[number] = [part + shift for part, shift in zip(columns[number], shifts, strict=True)]
        joined = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in columns]
        self.offsets, self.timestamps, self.key_starts, self.key_sizes = joined[:4]
        self.value_starts, self.value_sizes, self.headers_starts, self.headers_counts = joined[4:]
        self.pieces = pieces

    def __len__(self) -> int:
        return len(self.offsets)


def _used(piece: LazyRecords) -> tuple[int, int]:
    """Return the range of bytes of the area that the keys and values of a piece are in."""
    positions = piece.positions
    return positions.key_starts[0], positions.value_starts[-1] + max(positions.value_sizes[-1], 0)


def _one_area(pieces: Sequence[LazyRecords]) -> tuple[Any, list[int]]:
    """Return the bytes of all pieces, and the shift of each."""
    first = pieces[0].area
    if all(piece.area is first for piece in pieces):
        return first, [0] * len(pieces)
    parts: list[Any] = []
    shifts, size = [], 0
    for piece in pieces:
        begin, end = _used(piece)
        parts.append(memoryview(piece.area)[begin:end])
        shifts.append(size - begin)
        size += end - begin
    return b"".join(parts), shifts


class BatchMaker:
    """Maker of the record batches of one split, with chosen columns."""

    def __init__(
        self, columns: Sequence[str], partition: TopicPartition, ranges: KeyRanges, topic_id: bytes = ZERO_UUID
    ) -> None:
        self.schema = pa.schema([pa.field(name, TYPES[name]) for name in columns])
        self._columns = tuple(columns)
        self._place = partition
        self._starts = np.asarray(ranges.starts, dtype=np.int64)
        makers: dict[str, Callable[[_Rows], pa.Array]] = {
            "topic": lambda rows: pa.repeat(pa.scalar(self._place.topic), len(rows)),
            "topic_id": lambda rows: pa.repeat(pa.scalar(topic_id_text(topic_id)), len(rows)),
            "partition": lambda rows: pa.array(np.full(len(rows), self._place.partition, np.int32)),
            "offset": lambda rows: pa.array(rows.offsets),
            "timestamp": _timestamps,
            "timestampType": _timestamp_types,
            "headers": _headers,
            "record_bytes": _record_bytes,
        }
        self._makers = makers

    def batches(self, records: Iterable[LazyRecords]) -> Iterator[pa.RecordBatch]:
        """Yield record batches of about ROWS_PER_BATCH rows, in order."""
        pieces: list[LazyRecords] = []
        rows = size = 0
        for piece in records:
            begin, end = _used(piece)
            pieces.append(piece)
            rows, size = rows + len(piece), size + end - begin
            if rows >= ROWS_PER_BATCH or size >= BYTES_PER_BATCH:
                yield self.batch(pieces)
                pieces, rows, size = [], 0, 0
        if pieces:
            yield self.batch(pieces)

    def batch(self, pieces: Sequence[LazyRecords]) -> pa.RecordBatch:
        rows = _Rows(pieces)
        contents = _contents(rows, {"key", "value"} & set(self._columns))
        hashes = self._hashes(rows) if {"key_hash", "range_id"} & set(self._columns) else rows.offsets
        arrays = []
        for name in self._columns:
            if name in contents:
                arrays.append(contents[name])
            elif name == "key_hash":
                arrays.append(pa.array(hashes))
            elif name == "range_id":
                arrays.append(pa.array((np.searchsorted(self._starts, hashes, "right") - 1).astype(np.int32)))
            else:
                arrays.append(self._makers[name](rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @staticmethod
    def _hashes(rows: _Rows) -> Array:
        return key_hashes.record_hashes(rows.area, rows.key_starts, rows.key_sizes, rows.offsets)


def _contents(rows: _Rows, columns: set[str]) -> dict[str, pa.Array]:
    if not columns:
        return {}
    positions = []
    if "key" in columns:
        positions.append(("key", rows.key_starts, rows.key_sizes))
    if "value" in columns:
        positions.append(("value", rows.value_starts, rows.value_sizes))
    count = len(rows)
    tiles = np.empty((count, 2 * len(positions)), np.int32)
    for number, (_, starts, sizes) in enumerate(positions):
        tiles[:, 2 * number] = starts
        tiles[:, 2 * number + 1] = starts + np.maximum(sizes, 0)
    ends = np.append(tiles.reshape(-1), tiles[-1, -1]).astype(np.int32)
    tiled = pa.BinaryArray.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(rows.area)])
    arrays = {}
    for number, (name, _, sizes) in enumerate(positions):
        chosen = pa.array(np.arange(2 * number, 2 * len(positions) * count, 2 * len(positions), dtype=np.int32))
        if (sizes < 0).any():
            chosen = pc.if_else(pa.array(sizes >= 0), chosen, pa.scalar(None, pa.int32()))
        arrays[name] = pc.take(tiled, chosen, boundscheck=False)
    return arrays


def _timestamps(rows: _Rows) -> pa.Array:
    """Return timestamps in microseconds. -1 keeps Kafka's literal meaning, one millisecond before 1970."""
    return pa.array(rows.timestamps * 1000).cast(TYPES["timestamp"])


def _timestamp_types(rows: _Rows) -> pa.Array:
    kinds, counts = zip(*rows.timestamp_types, strict=True)
    return pa.array(np.repeat(np.asarray(kinds, np.int32), counts))


def _headers(rows: _Rows) -> pa.Array:
    """Return the headers, null for a record without any, as Spark's Kafka source."""
    if not rows.headers_counts.any():
        return pa.nulls(len(rows), HEADERS)
    headers = [
        [{"key": name, "value": value} for name, value in record.headers] or None
        for piece in rows.pieces
        for record in piece
    ]
    return pa.array(headers, HEADERS)


def _record_bytes(rows: _Rows) -> pa.Array:
    return pa.array(np.maximum(rows.key_sizes, 0).astype(np.int64) + np.maximum(rows.value_sizes, 0))
