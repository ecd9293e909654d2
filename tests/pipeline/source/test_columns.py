"""Columns hold what the records hold (pipeline/README.md rules 14 and 15)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.pipeline.source.columns import BYTES_PER_BATCH, ROWS_PER_BATCH, SPARK_TYPES, TYPES, BatchMaker
from kafka_share_proxy.pipeline.source.key_ranges import KeyRanges
from kafka_share_proxy.pipeline.source.options import COLUMNS
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.fetched_records import fetched_records
from kafka_share_proxy.wire.records.key_hash import hash_of_record
from kafka_share_proxy.wire.records.record_views import LazyRecords
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import TopicPartition

PLACE = TopicPartition("orders", 3)
RANGES = KeyRanges.even(5)
CONTENT = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple)
RECORDS = st.tuples(CONTENT, CONTENT, HEADERS | st.just(()), st.integers(0, 1 << 42)).map(
    lambda fields: Record(*fields)
)
BATCHES = st.lists(
    st.tuples(
        st.lists(RECORDS, min_size=1, max_size=6), st.integers(compression.NONE, compression.ZSTD), st.integers(0, 3)
    ),
    min_size=1,
    max_size=5,
)


def log_of(batches: list[tuple[list[Record], int, int]]) -> tuple[bytes, list[Record]]:
    """The bytes of a log, with gaps between batches, and the records that are in it."""
    data, expected, offset = b"", [], 0
    for records, codec, gap in batches:
        offset += gap
        data += build_batch(offset, records, codec=codec)
        expected += [record._replace(offset=offset + number) for number, record in enumerate(records)]
        offset += len(records)
    return data, expected


def read(data: bytes, columns: tuple[str, ...] = COLUMNS) -> list[dict[str, Any]]:
    maker = BatchMaker(columns, PLACE, RANGES)
    pieces = [fetched.records for fetched in fetched_records(data, 0) if len(fetched.records)]
    return [row for batch in maker.batches(pieces) for row in batch.to_pylist()]


@given(BATCHES)
def test_rows_are_the_records_in_every_codec(batches: list[tuple[list[Record], int, int]]) -> None:
    data, expected = log_of(batches)
    rows = read(data)
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [(r.key, r.value, r.offset) for r in expected]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [record.timestamp for record in expected]
    assert [row["key_hash"] for row in rows] == [hash_of_record(record.key, record.offset) for record in expected]
    assert [row["range_id"] for row in rows] == [RANGES.range_of(record.key, record.offset) for record in expected]
    assert [row["record_bytes"] for row in rows] == [len(r.key or b"") + len(r.value or b"") for r in expected]
    headers = [[{"key": name, "value": value} for name, value in record.headers] or None for record in expected]
    assert [row["headers"] for row in rows] == headers
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("orders", 3, 0)}


@given(BATCHES, st.sampled_from([("offset",), ("value",), ("offset", "key"), ("range_id", "value", "topic")]))
def test_columns_can_be_left_out_and_stand_in_any_order(
    batches: list[tuple[list[Record], int, int]], columns: tuple[str, ...]
) -> None:
    data, _ = log_of(batches)
    assert read(data, columns) == [{name: row[name] for name in columns} for row in read(data)]


def test_the_time_type_is_a_separate_column() -> None:
    maker = BatchMaker(("timestampType",), PLACE, RANGES)
    (first,) = [fetched.records for fetched in fetched_records(build_batch(0, [Record(b"a"), Record(b"b")]), 0)]
    second = LazyRecords(first.area, first.positions[:1], 1)
    assert maker.batch([first, second]).to_pylist() == [{"timestampType": kind} for kind in (0, 0, 1)]


def test_rows_and_bytes_of_a_record_batch_are_bounded() -> None:
    small = build_batch(0, [Record(b"k", b"v")] * 5_000)
    pieces = [fetched.records for fetched in fetched_records(small, 0)] * 4
    sizes = [batch.num_rows for batch in BatchMaker(("key",), PLACE, RANGES).batches(pieces)]
    assert sum(sizes) == 20_000
    assert all(ROWS_PER_BATCH <= size < ROWS_PER_BATCH + 5_000 for size in sizes[:-1])
    large = build_batch(0, [Record(b"k", bytes(BYTES_PER_BATCH))])
    pieces = [fetched.records for fetched in fetched_records(large, 0)] * 3
    assert [batch.num_rows for batch in BatchMaker(("value",), PLACE, RANGES).batches(pieces)] == [1, 1, 1]


def test_spark_gets_the_same_types() -> None:
    pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    from pyspark.sql.pandas.types import from_arrow_type

    assert TYPES.keys() == SPARK_TYPES.keys() == set(COLUMNS)
    assert {name: from_arrow_type(kind).simpleString() for name, kind in TYPES.items()} == {
        name: text.replace(": ", ":").replace(", ", ",") for name, text in SPARK_TYPES.items()
    }
