"""Lines become events or rejects (pipeline/README.md rule 26)."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.pipeline.audit.audit_events import parse_common, parse_fully

pytestmark = pytest.mark.slow
HEAD = '{"v": 2, "proxy_id": "p", "seq": 1, "ts_ms": 1795262400000, '


def test_a_line_that_is_no_event_is_kept_with_the_reason(spark: Any) -> None:
    lines = {
        HEAD + '"kind": "settle", "first": 5, "last": 5, "outcome": "accept"}': None,
        HEAD + '"kind": "of tomorrow", "colour": "red"}': None,
        HEAD + '"kind": "fetch", "ranges": 3}': None,
        HEAD + '"kind": "commit", "ranges": [[1, 2]]}': None,
        "  ": None,
        "{": "no JSON object of an event",
        "5": "no JSON object of an event",
        HEAD + '"kind": "settle", "first": "five"}': "no JSON object of an event",
        '{"v": 2, "proxy_id": "p"}': "v, proxy_id or seq is missing",
        '{"v": 2, "proxy_id": "p", "seq": 1, "kind": "load"}': "ts_ms or kind is missing",
        HEAD.replace("2", "3", 1) + '"kind": "load"}': "version 3",
        HEAD + '"kind": "load"}': "load without what it is about",
        HEAD + '"kind": "settle", "first": 5, "last": 4, "outcome": "accept"}': "settle without what it is about",
        HEAD + '"kind": "acquire", "first": 5, "last": 5}': "acquire without what it is about",
    }
    judged_rows = parse_fully(spark.createDataFrame([(line,) for line in lines], "value string"), "batch").collect()
    assert {row["line"]: row["reason"] for row in judged_rows if row["day"] is None} == {
        line: reason for line, reason in lines.items() if reason
    }
    events = {row["kind"]: row for row in judged_rows if row["reason"] is None}
    assert events.keys() == {"settle", "of tomorrow", "fetch", "commit"}
    assert {row["day"] for row in events.values()} == {"2026-11-21"}
    assert (events["fetch"]["ranges"], events["commit"]["ranges"]) == ("3", "[[1,2]]")


@pytest.mark.parametrize(
    ("ts_ms", "day"),
    [
        (0, "1970-01-01"),
        (253_402_300_799_999, "9999-12-31"),
        (-1, None),
        (253_402_300_800_000, None),
        ((1 << 63) - 1, None),
        (-(1 << 63), None),
    ],
)
def test_time_outside_the_calendar_is_a_reject_and_does_not_end_the_job(
    spark: Any, ts_ms: int, day: str | None
) -> None:
    line = HEAD.replace("1795262400000", str(ts_ms)) + '"kind": "settle", "first": 5, "last": 5, "outcome": "accept"}'
    lines = spark.createDataFrame([(line,)], "value string")
    (judged_row,) = parse_fully(lines, "batch").collect()
    assert (judged_row["day"], judged_row["reason"] is None) == (day, day is not None)
    assert parse_common(lines, "batch").collect()[0]["day"] == day
