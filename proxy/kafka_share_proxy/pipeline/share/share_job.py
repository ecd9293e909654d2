"""The job `share`: writes records delivered by a share group to the table `share_records`.

See pipeline/README.md rules 48 and 49.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient, TryAgain, check_code
from kafka_share_proxy.pipeline.share.acquirer import Totals
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions
from kafka_share_proxy.pipeline.share.share_stream import ShareStream, Write
from kafka_share_proxy.pipeline.source.checkpoints import files_of_batch
from kafka_share_proxy.pipeline.tables.files import Files
from kafka_share_proxy.pipeline.tables.ingest_job import KEPT_COLUMNS, PARTITIONS, Ingested, watch
from kafka_share_proxy.pipeline.tables.lake import Lake
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAG_VERSION = 1
"""First version of the request whose response contains the lag."""
TABLE = "share_records"
"""Separate from `records`, which holds each record once: a share group may deliver a record twice."""


def run(
    spark: SparkSession,
    option_values: Mapping[str, str],
    out: str,
    checkpoint: str,
    progress: Callable[[str], None],
    *,
    once: bool,
    table_format: str | None = None,
) -> tuple[Ingested, Totals]:
    """Join a share group and write its records until interrupted.

    `option_values` are options of `sharegroup`. With `once`, the job ends at the current end of the topics, without
    records that other members hold. `table_format` is used if the table is created; see Lake. Raises ProxyError, and
    Spark's StreamingQueryException if a batch failed for good.
    """
    lake = Lake(spark, out, table_format)
    lake.check_writable(TABLE)
    Files(spark).check_writable(checkpoint)
    columns = {"includeTopicId": KEPT_COLUMNS["includeTopicId"]}
    with ShareStream(spark, {**option_values, **columns}, checkpoint, progress) as stream:
        writer = _writer(lake, stream.kept.stream_id, partial(files_of_batch, Files(spark), checkpoint))
        query = stream.start(writer, name=f"share {stream.kept.group}", once=once)

        def line(report: Mapping[str, Any]) -> str:
            return line_of(report, stream.acquirer.totals, stream.member.renewals, lag_of_group(stream.options))

        done = watch(query, line, progress)
        return done, stream.acquirer.totals


def _writer(lake: Lake, stream_id: str, files_of: Callable[[int, Mapping[TopicPartition, int]], int | None]) -> Write:
    def write(rows: DataFrame, number: int) -> None:
        from pyspark.sql import functions

        day = functions.date_format("timestamp", "yyyy-MM-dd")
        batch = functions.lit(f"{stream_id}-{number:010d}")
        lake.overwrite(rows.withColumn("day", day).withColumn("batch", batch), TABLE, PARTITIONS, files_of(number, {}))

    return write


def line_of(report: Mapping[str, Any], totals: Totals, renewals: int, lag: int | None) -> str:
    """Return the report about one batch. `lag`: in offsets, None if unknown."""
    seconds = report["batchDuration"] / 1000
    return (
        f"batch {report['batchId']}: {report['numInputRows']} rows in {seconds:.1f} s, "
        f"lag {'unknown' if lag is None else lag}; so far {totals.acknowledged} offsets acknowledged, "
        f"{totals.redelivered} delivered again, {totals.refused} no longer held, {renewals} renewals"
    )


def lag_of_group(options: ShareSourceOptions) -> int | None:
    """Return the number of offsets of a group that are not settled (KIP-1226).

    None if the servers do not report it: a job runs without.
    """
    with BlockingClusterClient(options.source) as cluster, suppress(ProxyError, TryAgain):
        connection = cluster.coordinator(options.group)
        if connection.version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, LAG_VERSION) < LAG_VERSION:
            return None
        request = messages.DescribeShareGroupOffsetsRequest
        query = request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id=options.group, topics=None)])
        (group,) = connection.send_request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, query, LAG_VERSION).groups
        check_code(group.error_code, f"offsets of group {options.group}")
        return _sum_of_lags(group.topics, options.source.topics)
    return None


def _sum_of_lags(
    topics: Sequence[messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic],
    topic_names: Sequence[str],
) -> int | None:
    lags = [entry.lag for topic in topics if topic.topic_name in topic_names for entry in topic.partitions]
    return sum(lags) if lags and min(lags) >= 0 else None
