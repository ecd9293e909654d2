"""The Spark data source `keyrange`, for `spark.read` and `spark.readStream` (pipeline/README.md rules 14-20).

Register it in a job with `spark.dataSource.register(source_for(spark))`: Spark does not find sources in `--py-files`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession, datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.kafka.kept_connections import KeptConnections
from kafka_share_proxy.pipeline.source.mirrored_progress import MirroredProgress
from kafka_share_proxy.pipeline.source.options import EARLIEST, LATEST, BadOption, SourceOptions, read_options
from kafka_share_proxy.pipeline.source.pushdown import Predicate
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead, restricted
from kafka_share_proxy.pipeline.source.splits import Split
from kafka_share_proxy.pipeline.source.stream_offsets import (
    between,
    continued,
    decode_offsets,
    encode_offsets,
    limit_offsets,
    read_ids,
)
from kafka_share_proxy.wire.values import TopicPartition

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
"""Spark setting, off by default. While it is off, Spark refuses readers with `pushFilters`."""


class KeyRangeSource(datasource.DataSource):
    """Records of Kafka topics, divided by key range."""

    @classmethod
    def name(cls) -> str:
        return "keyrange"

    def schema(self) -> str:
        return schema_of(read_options(self.options))

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """Return a reader for a batch read. Raises BadOption."""
        return BatchReader(self._options(schema))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader for a stream. Raises BadOption."""
        return StreamReader(self._options(schema))

    def _options(self, schema: StructType) -> SourceOptions:
        options = read_options(self.options)
        check_declared(schema, options)
        return options


class PushdownSource(KeyRangeSource):
    """The source `keyrange` for sessions in which Spark pushes filters to Python sources (PUSHDOWN_SETTING)."""

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """Return a reader for a batch read. Raises BadOption."""
        return PushdownBatchReader(self._options(schema))


def schema_of(options: SourceOptions) -> str:
    from kafka_share_proxy.pipeline.source.columns import SPARK_TYPES

    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in options.columns)


def check_declared(schema: StructType, options: SourceOptions) -> None:
    """Raise BadOption for other columns: Spark would fail in the worker."""
    declared = [field.name for field in schema.fields]
    if declared != list(options.columns):
        raise BadOption(f".schema() names {declared}, the options {list(options.columns)}: leave .schema() out")


def source_for(session: SparkSession) -> type[KeyRangeSource]:
    """Return the class to register: readers cannot read the session's settings when Spark creates them."""
    is_on = session.conf.get(PUSHDOWN_SETTING, "false") == "true"
    return PushdownSource if is_on else KeyRangeSource


def read_split(options: SourceOptions, partition: datasource.InputPartition | None) -> Iterator[Any]:
    """Yield Arrow record batches. Spark passes None if a batch has no partitions."""
    if partition is None or partition.value is None:
        return
    from kafka_share_proxy.pipeline.source.columns import BatchMaker
    from kafka_share_proxy.pipeline.source.log_reader import LogReader

    next(_freezes, None)
    split = Split(*partition.value)
    maker = BatchMaker(options.columns, split.topic_partition, options.ranges, split.topic_id)
    yield from maker.batches(LogReader(options, split).records(_connections))


_connections = KeptConnections()
"""Connections of this worker process."""
FREEZES = 2


def _freezing() -> Iterator[None]:
    """Freeze objects before the first tasks.

    Spark collects garbage after every task, which would traverse the 70,000 objects of a worker that has loaded Arrow.
    The first task loads more objects, and they are frozen before the second.
    """
    for _ in range(FREEZES):
        gc.collect()
        gc.freeze()
        yield


_freezes = _freezing()


def input_partitions(splits: Iterable[Split]) -> list[datasource.InputPartition]:
    """Return the splits as plain values, the form that Spark accepts."""
    return [datasource.InputPartition(tuple(split)) for split in splits]


class BatchReader(datasource.DataSourceReader):
    """Reader of a batch query. Spark sends it to executors, so it holds only options and a predicate."""

    def __init__(self, options: SourceOptions) -> None:
        if options.mirror_group:
            raise BadOption("mirrorGroup is for streams: a batch read has no progress to follow")
        self._options = options
        self._predicate = Predicate()

    def partitions(self) -> Sequence[datasource.InputPartition]:
        with BlockingClusterClient(self._options) as cluster:
            planned = PlannedRead(cluster, self._options)
            predicate = self._predicate
            requested = restricted(planned.batch(), predicate.partitions, predicate.low, predicate.high)
            return input_partitions(planned.splits(requested, predicate.keys))

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        return read_split(self._options, partition)


class PushdownBatchReader(BatchReader):
    """Reader of a batch read that accepts predicates on key, partition and offset."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802 - Spark's name
        """Return filters on keys too, so that Spark checks the rows again."""
        self._predicate, remaining = self._predicate.narrowed(filters)
        return remaining


class StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: one in a Python process of the driver, and copies in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        if options.offset_ranges:
            raise BadOption("offsetRanges is for batch reads")
        if options.starting == LATEST:
            raise BadOption(
                "startingOffsets=latest: Spark queries a Python source twice and uses the second result, so records "
                "between the two would be lost; resolve it once with kafka_share_proxy.kept_start(...)"
            )
        if options.ending != LATEST:
            raise BadOption("endingOffsets is for batch reads")
        self._options = options
        self._cluster: BlockingClusterClient | None = None
        self._mirrored: MirroredProgress | None = None
        self._target: dict[TopicPartition, int] | None = None
        """End offsets of an availableNow run."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cluster": None, "_mirrored": None}

    def _planned(self) -> PlannedRead:
        """Keep connections from batch to batch."""
        if self._cluster is None:
            self._cluster = BlockingClusterClient(self._options)
            if self._options.mirror_group:
                self._mirrored = MirroredProgress(self._cluster, self._options.mirror_group)
        return PlannedRead(self._cluster, self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start, which stays the same unless records are deleted."""
        planned = self._planned()
        partitions = planned.partitions()
        replaced = planned.replaced(self._options.topic_ids)
        starting = planned.resolve(self._options.starting, partitions, EARLIEST, replaced)
        return encode_offsets(starting, planned.topic_ids())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        offsets_max = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if offsets_max is None else ReadMaxRows(offsets_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next batch. All batches before `start` are in Spark's commit log."""
        start_offsets, ids = decode_offsets(start), read_ids(start)
        planned = self._planned()
        if self._mirrored is not None:
            self._mirrored.commit(start_offsets)
        partitions = planned.partitions()
        replaced = planned.replaced(ids)
        start_offsets = {
            partition: offset for partition, offset in start_offsets.items() if partition.topic not in replaced
        }
        latest = planned.latest(partitions)
        shorter = planned.truncated(start_offsets, latest)
        start_offsets |= {
            partition: latest[partition] for partition in shorter if partition.topic in ids
        }  # all future records are new
        unknown = {partition.topic for partition in shorter if partition.topic not in ids}
        start_offsets = {
            partition: offset for partition, offset in start_offsets.items() if partition.topic not in unknown
        }
        start_offsets |= planned.earliest([partition for partition in partitions if partition not in start_offsets])
        if self._target is not None:
            latest = {
                partition: min(end, self._target.get(partition, start_offsets[partition]))
                for partition, end in latest.items()
            }
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        unlisted_offsets = {partition: offset for partition, offset in start_offsets.items() if partition not in latest}
        return encode_offsets(limit_offsets(start_offsets, latest, offsets_max) | unlisted_offsets, planned.topic_ids())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        planned = self._planned()
        return encode_offsets(planned.latest(planned.partitions()), planned.topic_ids())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        planned = self._planned()
        self._target = planned.latest(planned.partitions())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        """Return the tasks. The rows are the same each time, for any key ranges."""
        start_offsets, ends, ids = decode_offsets(start), decode_offsets(end), read_ids(end)
        planned = self._planned()
        start_offsets = continued(start_offsets, read_ids(start), ends, ids)
        lost = planned.replaced(ids)  # since the batch was planned
        ends = {partition: offset for partition, offset in ends.items() if partition.topic not in lost}
        first = planned.earliest([partition for partition in ends if partition not in start_offsets])
        return input_partitions(planned.splits(between(start_offsets, ends, first), ids=ids))

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        return read_split(self._options, partition)

    def stop(self) -> None:
        """Close the connections. Spark does not always call this."""
        if self._cluster is not None:
            self._cluster.close()
