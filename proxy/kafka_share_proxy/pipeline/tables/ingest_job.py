"""The job `ingest`: writes a topic to the table `records`, each record once (pipeline/README.md rules 35 to 37)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.source.checkpoints import files_of_batch
from kafka_share_proxy.pipeline.source.options import SourceOptions, read_options
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.source.starting import KeptStart, kept_start
from kafka_share_proxy.pipeline.source.stream_offsets import decode_offsets
from kafka_share_proxy.pipeline.tables.files import Files
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.pipeline.tables.record_claims import TABLE, RecordClaims
from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = ("day", "batch")
POLL_S = 0.5
"""Seconds between polls of Spark's progress reports. It keeps those of 100 batches, and no batch is that fast."""


KEPT_COLUMNS = {"includeKeyHash": "true", "includeTopicId": "true"}
"""Options of additional columns. Topic id, partition and offset are the key."""


class Ingested(NamedTuple):
    """Result of a run."""

    batches: int
    rows: int


def run(
    spark: SparkSession,
    option_values: Mapping[str, str],
    ranges: str,
    out: str,
    checkpoint: str,
    progress: Callable[[str], None],
    *,
    once: bool,
    table_format: str | None = None,
) -> Ingested:
    """Read a topic from the position in the checkpoint, with `once` up to the current end of the topic.

    `ranges`, a number of even key ranges or a plan file, may change at each start. `table_format` is used if the table
    is created; see Lake. Raises ProxyError, and Spark's StreamingQueryException if a batch failed for good.
    """
    range_options = {"keyRanges": ranges} if ranges.isdecimal() else {"rangePlan": ranges}
    lake = Lake(spark, out, table_format)
    lake.check_writable(TABLE)
    Files(spark).check_writable(checkpoint)
    start = kept_start(spark, option_values, checkpoint)
    options = start.options(option_values) | range_options | KEPT_COLUMNS
    excepted = RecordClaims(spark, lake).excepted(start, checkpoint, is_whole=True)
    if excepted:
        options["exceptOffsets"] = json.dumps(excepted)
        progress(f"{sum(each['last'] - each['first'] + 1 for each in excepted)} records are in the table already")
    frame = spark.readStream.format("keyrange").options(**options).load()
    writer = frame.writeStream.foreachBatch(
        _writer(lake, start, ranges, partial(files_of_batch, Files(spark), checkpoint))
    )
    writer = writer.option("checkpointLocation", checkpoint).queryName(f"ingest {start.topic}")
    query = (writer.trigger(availableNow=True) if once else writer).start()
    checked = read_options(options)
    return watch(query, lambda report: line_of(report, lag_of(report, checked)), progress)


def _writer(
    lake: Lake, start: KeptStart, ranges: str, files_of: Callable[[int, Mapping[TopicPartition, int]], int | None]
) -> Callable[[DataFrame, int], None]:
    start_offsets = decode_offsets({"v": 1, "t": json.loads(start.offsets)})

    def write(rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions

        day = functions.date_format("timestamp", "yyyy-MM-dd")
        batch = functions.lit(f"{start.stream_id}-{number:010d}")
        labelled = rows.withColumn("ranges", functions.lit(ranges)).withColumn("day", day).withColumn("batch", batch)
        lake.overwrite(labelled, TABLE, PARTITIONS, files_of(number, start_offsets))

    return write


def watch(query: Any, line: Callable[[Mapping[str, Any]], str], progress: Callable[[str], None]) -> Ingested:
    """Report each batch until the query ends."""
    last_batch, rows, batches = -1, 0, 0
    try:
        while True:
            ended = query.awaitTermination(POLL_S)
            for each in query.recentProgress:
                if each["batchId"] > last_batch and each["numInputRows"]:
                    last_batch = each["batchId"]
                    rows, batches = rows + each["numInputRows"], batches + 1
                    progress(line(each))
            if ended:
                return Ingested(batches, rows)
    finally:
        query.stop()


def line_of(report: Mapping[str, Any], lag: int) -> str:
    seconds = report["batchDuration"] / 1000
    return f"batch {report['batchId']}: {report['numInputRows']} rows in {seconds:.1f} s, lag {lag}"


def lag_of(report: Mapping[str, Any], options: SourceOptions) -> int:
    """Return the lag in offsets, queried from the cluster: Spark does not query a Python source each time."""
    (source,) = report["sources"]
    read = decode_offsets(json.loads(source["endOffset"]))
    with BlockingClusterClient(options) as cluster:
        latest = PlannedRead(cluster, options).latest(list(read))
    return sum(max(0, offset - read[partition]) for partition, offset in latest.items())
