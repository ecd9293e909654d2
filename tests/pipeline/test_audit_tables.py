"""Queries of the tables; what they count is in test_audit_job.py (pipeline/README.md rules 28 to 33)."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.pipeline import audit_tables
from proxy.pipeline.audit_events import read_lines

pytestmark = pytest.mark.slow


def test_tables_of_no_events_are_empty_and_have_their_columns(spark: Any) -> None:
    events = read_lines(spark.createDataFrame([], "value string")).events
    made = {name: make() for name, make in audit_tables.tables(events).items()}
    assert {name: frame.count() for name, frame in made.items()} == dict.fromkeys(made, 0)
    assert all("day" in frame.columns for frame in made.values())
    assert made["key_range_load"].columns == ["day", "minute", "topic", "bucket", "rows", "bytes", "hold_ms"]


def test_numbers_below_the_highest_are_missed(spark: Any) -> None:
    spark.createDataFrame(
        [("p", 2), ("p", 2), ("p", 5), ("q", 1)], "proxy_id string, seq bigint"
    ).createOrReplaceTempView("events")
    found = {row["proxy_id"]: tuple(row)[1:] for row in spark.sql(audit_tables.GAPS).collect()}
    assert found == {"p": (2, 5, 2, 3), "q": (1, 1, 1, 0)}
