"""The job `ingest`: a topic into the table `records`, each record once (pipeline/README.md rules 35 to 37)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.lake import Lake
from proxy.pipeline.options import SourceOptions, read_options
from proxy.pipeline.planning import PlannedRead
from proxy.pipeline.starting import KeptStart, kept_start
from proxy.pipeline.stream_offsets import read_written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "records"
PARTITIONS = ("day", "batch")
POLL_S = 0.5
"""Spark keeps the reports of 100 batches, and no batch is that quick."""


class Ingested(NamedTuple):
    """What a run wrote."""

    batches: int
    rows: int


def run(
    spark: SparkSession,
    given: Mapping[str, str],
    ranges: str,
    out: str,
    checkpoint: str,
    progress: Callable[[str], None],
    *,
    once: bool,
) -> Ingested:
    """Read a topic from where the checkpoint is.

    Args:
        spark: a session with the source.
        given: options of the source.
        ranges: a number of even key ranges, or a plan file; may be another at every start.
        out: the lake.
        checkpoint: folder of this stream.
        progress: is given a line for each batch.
        once: stop at what the topic has now; else run until interrupted.

    Raises:
        ProxyError: as the text says. Spark's StreamingQueryException: a batch failed for good.
    """
    cut = {"keyRanges": ranges} if ranges.isdecimal() else {"rangePlan": ranges}
    start = kept_start(spark, given, checkpoint)
    options = start.options(given) | cut | {"includeKeyHash": "true"}
    frame = spark.readStream.format("keyrange").options(**options).load()
    writer = frame.writeStream.foreachBatch(_writer(Lake(spark, out), start, ranges))
    writer = writer.option("checkpointLocation", checkpoint).queryName(f"ingest {start.topic}")
    query = (writer.trigger(availableNow=True) if once else writer).start()
    checked = read_options(options)
    return watch(query, lambda report: line_of(report, lag_of(report, checked)), progress)


def _writer(lake: Lake, start: KeptStart, ranges: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions

        day = functions.date_format("timestamp", "yyyy-MM-dd")
        batch = functions.lit(f"{start.stream_id}-{number:010d}")
        named = rows.withColumn("ranges", functions.lit(ranges)).withColumn("day", day).withColumn("batch", batch)
        lake.overwrite(named, TABLE, PARTITIONS)

    return write


def watch(query: Any, line: Callable[[Mapping[str, Any]], str], progress: Callable[[str], None]) -> Ingested:
    """Tell of each batch until the query ends; `line` makes the words of Spark's report."""
    seen, rows, batches = -1, 0, 0
    try:
        while True:
            ended = query.awaitTermination(POLL_S)
            for each in query.recentProgress:
                if each["batchId"] > seen and each["numInputRows"]:
                    seen = each["batchId"]
                    rows, batches = rows + each["numInputRows"], batches + 1
                    progress(line(each))
            if ended:
                return Ingested(batches, rows)
    finally:
        query.stop()


def line_of(report: Mapping[str, Any], lag: int) -> str:
    """What a person is told of one batch; `lag` in offsets."""
    seconds = report["batchDuration"] / 1000
    return f"batch {report['batchId']}: {report['numInputRows']} rows in {seconds:.1f} s, lag {lag}"


def lag_of(report: Mapping[str, Any], options: SourceOptions) -> int:
    """Offsets that are there now and were not read with this batch: Spark does not ask a Python source each time."""
    (source,) = report["sources"]
    read = read_written(json.loads(source["endOffset"]))
    with ClusterClient(options) as cluster:
        latest = PlannedRead(cluster, options).latest(list(read))
    return sum(max(0, offset - read[place]) for place, offset in latest.items())
