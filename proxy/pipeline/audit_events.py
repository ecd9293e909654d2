"""Audit events as Spark reads them: lines in, typed rows out (pipeline/README.md rules 26 to 28)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VERSION = 2
"""Of the events (`v`)."""
CORRUPT = "_corrupt"
LINE_SHOWN = 2_000
"""Characters of a rejected line that are kept."""

COMMON = (
    "v int, proxy_id string, seq bigint, ts_ms bigint, kind string, cluster string, topic string, partition int, "
    "`group` string, member string, "
    "first bigint, last bigint, attempt int, bytes bigint, lock_ms bigint, by string, t_acquire_ms bigint, "
    "outcome string, renews bigint, renew_ms bigint, start_offset bigint"
)
"""All that events of COMMON_KINDS have, which are nearly all events."""
COMMON_KINDS = ("acquire", "settle", "renew")
FIELDS = (
    f"{COMMON}, reader string, view string, slot int, "
    "client string, lo bigint, hi bigint, ranges string, requests bigint, rows_in bigint, rows_out bigint, "
    "bytes_in bigint, bytes_out bigint, interval_ms bigint, rows bigint, hold_ms bigint, sampled bigint, "
    "sampled_bytes bigint, buckets map<string, array<bigint>>, null_keys bigint, error bigint, "
    "keys array<array<bigint>>, offset bigint, previous bigint, plan_id string"
)
"""All that events of any kind have. `ranges` is a number in `fetch` and a list in `commit`: kept as its text."""
KEY = ("proxy_id", "seq")
"""By which copies are told."""
TS_MS_END = 253_402_300_800_000
"""The year 10000, up to which days are written with four digits of the year."""
DAY = "cast(date_from_unix_date(cast(event.ts_ms div 86400000 as int)) as string)"
"""In UTC, whatever the session's zone is."""
NEEDED = {
    "settle": ("first", "last", "outcome"),
    "acquire": ("first", "last", "attempt"),
    "load": ("rows", "sampled"),
}
"""What an event of a kind must have to be counted; a last offset is not below the first."""


def common(lines: DataFrame, batch: str) -> DataFrame:
    """Lines of JSON, one event each, in a column `value`, of which events of the common kinds are typed rows.

    Every column costs at each step from here to the file: half of all CPU, were these rows as wide as `judged`. They
    have a `day`, and copies are still among them. What is anything else has no day, but its `line`.

    Args:
        lines: what proxies wrote.
        batch: stands in `ingest_batch`.
    """
    from pyspark.sql import functions

    kinds = ", ".join(f"'{kind}'" for kind in COMMON_KINDS)
    told = _parsed(lines, COMMON).select(
        "value",
        "event",
        (_reason(NEEDED.keys() & COMMON_KINDS).isNull() & functions.expr(f"event.kind in ({kinds})")).alias(
            "is_common"
        ),
    )
    line, day = (
        functions.when(~functions.col("is_common"), functions.col("value")),
        functions.when(functions.col("is_common"), functions.expr(DAY)),
    )
    return told.select(
        "event.*", functions.lit(batch).alias("ingest_batch"), line.alias("line"), day.alias("day")
    ).drop(CORRUPT)


def judged(lines: DataFrame, batch: str) -> DataFrame:
    """The same with all columns: an event has a `day`, and what is no event has none, but `line` and `reason`.

    A kind that is not known is an event as any other; a last line that was cut short is a reject until it is whole.
    """
    from pyspark.sql import functions

    told = _parsed(lines, FIELDS).select("value", "event", _reason(NEEDED).alias("reason"))
    line = functions.when(functions.col("reason").isNotNull(), functions.substring("value", 1, LINE_SHOWN))
    day = functions.when(functions.col("reason").isNull(), functions.expr(DAY))
    mine = [functions.lit(batch).alias("ingest_batch"), "reason", line.alias("line"), day.alias("day")]
    return told.select("event.*", *mine).drop(CORRUPT)


def _parsed(lines: DataFrame, fields: str) -> DataFrame:
    from pyspark.sql import functions

    parse = functions.from_json("value", f"{fields}, {CORRUPT} string", {"columnNameOfCorruptRecord": CORRUPT})
    return lines.where("trim(value) != ''").select("value", parse.alias("event"))


def _reason(kinds: Collection[str]) -> Column:
    """Why a line is no event; null for an event."""
    from pyspark.sql import functions

    reason = (
        functions.when(
            functions.col("event").isNull() | functions.col(f"event.{CORRUPT}").isNotNull(),
            "no JSON object of an event",
        )
        .when(
            functions.expr("event.v is null or event.proxy_id is null or event.seq is null"),
            "v, proxy_id or seq is missing",
        )
        .when(functions.expr("event.ts_ms is null or event.kind is null"), "ts_ms or kind is missing")
        .when(functions.expr(f"event.ts_ms < 0 or event.ts_ms >= {TS_MS_END}"), "ts_ms is no time from 1970 to 9999")
        .when(
            functions.expr(f"event.v != {VERSION}"),
            functions.concat(functions.lit("version "), functions.expr("cast(event.v as string)")),
        )
    )
    for kind in kinds:
        reason = reason.when(
            functions.expr(f"event.kind = '{kind}' and not coalesce({condition(kind)}, false)"),
            f"{kind} without what it is about",
        )
    return reason


def condition(kind: str) -> str:
    """In SQL: whether `event` has what is NEEDED of its kind."""
    needed = [f"event.{name} is not null" for name in NEEDED[kind]]
    return " and ".join([*needed, "event.last >= event.first"] if "last" in NEEDED[kind] else needed)
