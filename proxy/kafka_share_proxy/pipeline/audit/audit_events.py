"""Spark's columns of audit events: from lines of JSON to typed rows (pipeline/README.md rules 26 to 28)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VERSION = 2
"""Version of the events (field `v`)."""
LAST = 2
"""Field after the line in the parsed object, which detects anything else on the line."""
CORRUPT = "_corrupt"
MORE = "more than one event on the line"
"""Reason of a reject."""
LINE_SHOWN = 2_000
"""Maximum number of characters of a rejected line that are kept."""

COMMON = (
    "v int, proxy_id string, seq bigint, ts_ms bigint, kind string, cluster string, topic string, partition int, "
    "`group` string, member string, "
    "first bigint, last bigint, attempt int, bytes bigint, lock_ms bigint, by string, t_acquire_ms bigint, "
    "outcome string, renews bigint, renew_ms bigint, start_offset bigint"
)
"""Fields of the events of COMMON_KINDS, which are nearly all events."""
COMMON_KINDS = ("acquire", "settle", "renew")
FIELDS = (
    f"{COMMON}, reader string, view string, slot int, "
    "client string, lo bigint, hi bigint, ranges string, requests bigint, rows_in bigint, rows_out bigint, "
    "bytes_in bigint, bytes_out bigint, interval_ms bigint, rows bigint, hold_ms bigint, sampled bigint, "
    "sampled_bytes bigint, buckets map<string, array<bigint>>, null_keys bigint, error bigint, "
    "keys array<array<bigint>>, looks bigint, sample_size bigint, effective_size bigint, "
    "key_texts map<string, string>, host string, offset bigint, previous bigint, plan_id string, "
    "group_protocol string, assignor string, offered array<string>, members bigint, due_ms bigint, "
    "key_hash string, behind bigint, waiting bigint, blocked_ms bigint, "
    "dead_letter_topic string, partitions int, held_back_ms bigint, records bigint"
)
"""Fields of the events of all kinds. `ranges` is a number in `fetch` and a list in `commit`, and is kept as text."""
KEY = ("proxy_id", "seq")
"""Fields that identify an event."""
TS_MS_END = 253_402_300_800_000
"""Start of the year 10000: days before it have four digits of the year."""
DAY = "cast(date_from_unix_date(cast(event.ts_ms div 86400000 as int)) as string)"
NEEDED = {
    "settle": ("first", "last", "outcome"),
    "acquire": ("first", "last", "attempt"),
    "load": ("rows", "sampled"),
}
"""Fields that an event of a kind must have to be counted. Its last offset must not be below the first."""


def parse_common(lines: DataFrame, batch: str) -> DataFrame:
    """Parse lines of JSON, one event each, in a column `value`.

    Every column costs CPU at each step: half of all CPU, if these rows were as wide as those of `parse_fully`. Events
    of the common kinds have a `day`; copies are still among them. All other lines have no day, but their `line`.
    """
    from pyspark.sql import functions

    kinds = ", ".join(f"'{kind}'" for kind in COMMON_KINDS)
    rows = _parsed(lines, COMMON).select(
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
    return rows.select("event.*", functions.lit(batch).alias("ingest_batch"), line.alias("line"), day.alias("day"))


def parse_fully(lines: DataFrame, batch: str) -> DataFrame:
    """Parse lines with all columns: an event has a `day`, a reject has `line` and `reason` instead.

    `line_hash` is the SHA-256 of the whole line, `line` its beginning as valid UTF-8. A last line that was cut short is
    a reject until it is whole.
    """
    from pyspark.sql import functions

    rows = _parsed(lines, FIELDS).select("value", "event", _reason(NEEDED).alias("reason"))
    is_reject = functions.col("reason").isNotNull()
    line = functions.when(is_reject, functions.expr(f"substring(make_valid_utf8(value), 1, {LINE_SHOWN})"))
    line_hash = functions.when(is_reject, functions.sha2("value", 256)).alias("line_hash")
    day = functions.when(functions.col("reason").isNull(), functions.expr(DAY))
    mine = [functions.lit(batch).alias("ingest_batch"), "reason", line.alias("line"), line_hash, day.alias("day")]
    return rows.select("event.*", *mine)


def _parsed(lines: DataFrame, fields: str) -> DataFrame:
    """Return the lines with a column `event`, which is null if a line is not exactly one JSON object.

    Spark's parser ignores anything after the first object, even a second event. The frame around a line detects that.
    """
    from pyspark.sql import functions

    schema = f"line array<struct<{fields}>>, last int, {CORRUPT} string"
    parse = functions.from_json(_framed(), schema, {"columnNameOfCorruptRecord": CORRUPT})
    is_one = functions.expr(f"parsed.{CORRUPT} is null and parsed.last = {LAST} and size(parsed.line) = 1")
    event = functions.when(is_one, functions.expr("parsed.line[0]")).alias("event")
    return lines.where("trim(value) != ''").select("value", parse.alias("parsed")).select("value", event)


def _framed() -> Column:
    """Return the line as the only element of an array, in an object with another field after it."""
    from pyspark.sql import functions

    return functions.concat(functions.lit('{"line": ['), "value", functions.lit(f'], "last": {LAST}}}'))


def _reason(kinds: Collection[str]) -> Column:
    from pyspark.sql import functions

    begins = functions.from_json("value", "seq bigint")["seq"].isNotNull()
    is_more = begins & functions.from_json(_framed(), "last int")["last"].isNull()
    reason = (
        functions.when(
            functions.col("event").isNull(),
            functions.when(is_more, MORE).otherwise("no JSON object of an event"),
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
    """Return the SQL condition for an event of this kind to be counted (NEEDED)."""
    needed = [f"event.{name} is not null" for name in NEEDED[kind]]
    return " and ".join([*needed, "event.last >= event.first"] if "last" in NEEDED[kind] else needed)
