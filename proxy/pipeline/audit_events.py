"""Audit events as Spark reads them: lines in, typed rows and rejects out (pipeline/README.md rules 26 to 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = 2
"""Of the events (`v`)."""
CORRUPT = "_corrupt"
LINE_SHOWN = 2_000
"""Characters of a rejected line that are kept."""

FIELDS = (
    "v int, proxy_id string, seq bigint, ts_ms bigint, kind string, cluster string, topic string, partition int, "
    "`group` string, member string, "
    "first bigint, last bigint, attempt int, bytes bigint, lock_ms bigint, by string, t_acquire_ms bigint, "
    "outcome string, renews bigint, renew_ms bigint, start_offset bigint, reader string, view string, slot int, "
    "client string, lo bigint, hi bigint, ranges string, requests bigint, rows_in bigint, rows_out bigint, "
    "bytes_in bigint, bytes_out bigint, interval_ms bigint, rows bigint, hold_ms bigint, sampled bigint, "
    "sampled_bytes bigint, buckets map<string, array<bigint>>, null_keys bigint, error bigint, "
    "keys array<array<bigint>>, offset bigint, previous bigint, plan_id string"
)
"""All that events of any kind have. `ranges` is a number in `fetch` and a list in `commit`: kept as its text."""
KEY = ("proxy_id", "seq")
"""By which copies are told."""
NEEDED = {
    "settle": "event.first is not null and event.last >= event.first and event.outcome is not null",
    "acquire": "event.first is not null and event.last >= event.first and event.attempt is not null",
    "load": "event.rows is not null and event.sampled is not null",
}
"""What an event of a kind must have to be counted."""


class ReadEvents(NamedTuple):
    """What came of the lines."""

    events: DataFrame
    """Typed, with `day`; copies are still in it."""
    rejects: DataFrame
    """`line`, `reason`."""


def read_lines(lines: DataFrame) -> ReadEvents:
    """Lines of JSON, one event each, in a column `value`.

    A kind that is not known is an event as any other; a last line that was cut short is a reject until it is whole.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    parsed = lines.select(
        "value",
        F.from_json("value", f"{FIELDS}, {CORRUPT} string", {"columnNameOfCorruptRecord": CORRUPT}).alias("event"),
    ).where("length(trim(value)) > 0")
    reason = (
        F.when(F.col("event").isNull() | F.col(f"event.{CORRUPT}").isNotNull(), "no JSON object of an event")
        .when(F.expr("event.v is null or event.proxy_id is null or event.seq is null"), "v, proxy_id or seq is missing")
        .when(F.expr("event.ts_ms is null or event.kind is null"), "ts_ms or kind is missing")
        .when(F.expr(f"event.v != {VERSION}"), F.concat(F.lit("version "), F.expr("cast(event.v as string)")))
    )
    for kind, needed in NEEDED.items():
        reason = reason.when(
            F.expr(f"event.kind = '{kind}' and not coalesce({needed}, false)"), f"{kind} without what it is about"
        )
    judged = parsed.withColumn("reason", reason)
    good = judged.where("reason is null").select("event.*").drop(CORRUPT)
    day = F.expr("date_format(timestamp_millis(ts_ms), 'yyyy-MM-dd')")
    bad = judged.where("reason is not null").select(F.substring("value", 1, LINE_SHOWN).alias("line"), "reason")
    return ReadEvents(good.withColumn("day", day), bad)
