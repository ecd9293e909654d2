"""The job `share`: what a share group delivers, into the table `share_records` (pipeline/README.md rules 48 and 49)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from proxy.pipeline.acquirer import Totals
from proxy.pipeline.ingest_job import PARTITIONS, Ingested, watch
from proxy.pipeline.lake import Lake
from proxy.pipeline.share_lag import lag_of_group
from proxy.pipeline.share_stream import ShareStream, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "share_records"
"""A table of its own: `records` promises that each record stands there once."""


def run(
    spark: SparkSession,
    given: Mapping[str, str],
    out: str,
    checkpoint: str,
    progress: Callable[[str], None],
    *,
    once: bool,
) -> tuple[Ingested, Totals]:
    """Be a member of a share group until interrupted.

    Args:
        spark: a session with the source.
        given: options of `sharegroup`.
        out: the lake.
        checkpoint: folder of this stream.
        progress: is given a line for each batch.
        once: end at what the topics have now, as far as no other member holds it.

    Raises:
        ProxyError: as the text says. Spark's StreamingQueryException: a batch failed for good.
    """
    with ShareStream(spark, given, checkpoint, progress) as stream:
        writer = _writer(Lake(spark, out), stream.kept.stream_id)
        query = stream.start(writer, name=f"share {stream.kept.group}", once=once)

        def line(report: Mapping[str, Any]) -> str:
            return line_of(report, stream.acquirer.totals, stream.member.renewals, lag_of_group(stream.options))

        done = watch(query, line, progress)
        return done, stream.acquirer.totals


def _writer(lake: Lake, stream_id: str) -> Write:
    def write(rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions

        day = functions.date_format("timestamp", "yyyy-MM-dd")
        batch = functions.lit(f"{stream_id}-{number:010d}")
        lake.overwrite(rows.withColumn("day", day).withColumn("batch", batch), TABLE, PARTITIONS)

    return write


def line_of(report: Mapping[str, Any], totals: Totals, renewals: int, lag: int | None) -> str:
    """What a person is told of one batch, and of all so far; `lag` in offsets, None: nobody knows."""
    seconds = report["batchDuration"] / 1000
    return (
        f"batch {report['batchId']}: {report['numInputRows']} rows in {seconds:.1f} s, "
        f"lag {'unknown' if lag is None else lag}; so far {totals.acknowledged} offsets acknowledged, "
        f"{totals.came_again} came again, {totals.refused} not held any more, {renewals} renewals"
    )
