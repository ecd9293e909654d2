"""Totals of queues by group, for the report: delays, dead letters, blocked keys (pipeline/README.md rule 41)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUES_MAX = 30


class QueueTotals(NamedTuple):
    """Totals of one group, over all days."""

    group: str
    delayed: int
    """Offsets that waited for a redelivery, once for each wait."""
    longest_delay_ms: int
    rejected: int
    """Dead letters of records that members rejected."""
    exhausted: int
    """Dead letters of records whose deliveries were used up."""
    hottest_key: str
    """Hash of the key for which most records waited. "-" without key order, or if none waited."""
    waiting: int
    """Maximum number of records that waited for one record of this key."""
    handed_over_ms: int | None
    """Time of the last hand-over to the brokers, in milliseconds since 1970. None if there was none."""
    taken_back_ms: int | None
    """Time of the last take-back from the brokers, likewise."""
    held_back_ms: int
    """Longest time for which a move between here and the brokers held new records back."""
    blocked_ms: int
    """Longest time for which a record with waiting ones was the oldest of its share partition."""


def gather(events: DataFrame) -> tuple[QueueTotals, ...]:
    """Return the totals of the groups with most dead letters, then most delayed records."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if not {"due_ms", "key_hash", "dead_letter_topic", "held_back_ms"} <= set(events.columns):  # earlier tables
        return ()
    offsets = "last - first + 1"
    totals = (
        events.where("kind in ('delayed', 'dead_letter', 'blocked', 'handed_over', 'taken_back')")
        .groupBy("group")
        .agg(
            F.expr(f"coalesce(sum({offsets}) filter (where kind = 'delayed'), 0)").alias("delayed"),
            F.expr("coalesce(max(due_ms - ts_ms), 0)").alias("longest_delay_ms"),
            F.expr(f"coalesce(sum({offsets}) filter (where kind = 'dead_letter' and outcome = 'reject'), 0)").alias(
                "rejected"
            ),
            F.expr(f"coalesce(sum({offsets}) filter (where kind = 'dead_letter' and outcome != 'reject'), 0)").alias(
                "exhausted"
            ),
            F.expr("max(ts_ms) filter (where kind = 'handed_over')").alias("handed_over_ms"),
            F.expr("max(ts_ms) filter (where kind = 'taken_back')").alias("taken_back_ms"),
            F.expr("coalesce(max(held_back_ms), 0)").alias("held_back_ms"),
            F.expr("coalesce(max_by(key_hash, waiting), '-')").alias("hottest_key"),
            F.expr("coalesce(max(waiting), 0)").alias("waiting"),
            F.expr("coalesce(max(blocked_ms) filter (where kind = 'blocked'), 0)").alias("blocked_ms"),
        )
    )
    rows = totals.orderBy(F.expr("rejected + exhausted").desc(), F.desc("delayed"), "group").limit(QUEUES_MAX).collect()
    return tuple(QueueTotals(**{name: row[name] for name in QueueTotals._fields}) for row in rows)
