"""The Spark data source `keyrange`, for `spark.read` and `spark.readStream` (pipeline/README.md rules 14-20).

Register it in a job with `spark.dataSource.register(source_for(spark))`: Spark does not find what `--py-files` ships.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession, datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.kept_connections import KeptConnections
from proxy.pipeline.mirrored_progress import MirroredProgress
from proxy.pipeline.options import EARLIEST, LATEST, BadOption, SourceOptions, read_options
from proxy.pipeline.planning import PlannedRead, restricted
from proxy.pipeline.pushdown import Predicate
from proxy.pipeline.splits import Split
from proxy.pipeline.stream_offsets import admitted, between, read_written, written
from proxy.wire.values import TopicPartition

PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
"""Off as shipped; Spark refuses readers with `pushFilters` while it is."""


class KeyRangeSource(datasource.DataSource):
    """Records of Kafka topics, divided by key range."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "keyrange"

    def schema(self) -> str:
        """The columns that the options choose. Raises BadOption."""
        return schema_of(read_options(self.options))

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """For a batch. Raises BadOption."""
        return BatchReader(self._options(schema))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For a stream. Raises BadOption."""
        return StreamReader(self._options(schema))

    def _options(self, schema: StructType) -> SourceOptions:
        options = read_options(self.options)
        check_declared(schema, options)
        return options


class PushdownSource(KeyRangeSource):
    """The same for sessions in which Spark pushes filters to Python sources (PUSHDOWN_SETTING)."""

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """For a batch. Raises BadOption."""
        return PushdownBatchReader(self._options(schema))


def schema_of(options: SourceOptions) -> str:
    """The columns that the options choose, in Spark's words."""
    from proxy.pipeline.columns import SPARK_TYPES

    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in options.columns)


def check_declared(schema: StructType, options: SourceOptions) -> None:
    """Raise BadOption where a schema that was given by hand has other columns: Spark would fail in the worker."""
    declared = [field.name for field in schema.fields]
    if declared != list(options.columns):
        raise BadOption(f".schema() names {declared}, the options {list(options.columns)}: leave .schema() out")


def source_for(session: SparkSession) -> type[KeyRangeSource]:
    """The class to register: where a reader is made nobody can ask the session any more."""
    is_on = session.conf.get(PUSHDOWN_SETTING, "false") == "true"
    return PushdownSource if is_on else KeyRangeSource


def read_split(options: SourceOptions, partition: datasource.InputPartition | None) -> Iterator[Any]:
    """The Arrow record batches of one task. None is what Spark makes of no partitions at all."""
    if partition is None or partition.value is None:
        return
    from proxy.pipeline.columns import BatchMaker
    from proxy.pipeline.log_reader import LogReader

    next(_freezes, None)
    split = Split(*partition.value)
    maker = BatchMaker(options.columns, split.place, options.ranges)
    yield from maker.batches(LogReader(options, split).records(_kept))


_kept = KeptConnections()
"""Of this worker."""
FREEZES = 2


def _freezing() -> Iterator[None]:
    """Spark collects garbage after every task, and a worker that has loaded Arrow holds 70,000 objects, at which each
    collection would look again. The first task loads more of them: once more before the next.
    """
    for _ in range(FREEZES):
        gc.collect()
        gc.freeze()
        yield


_freezes = _freezing()


def input_partitions(splits: Iterable[Split]) -> list[datasource.InputPartition]:
    """As Spark takes them: plain values."""
    return [datasource.InputPartition(tuple(split)) for split in splits]


class BatchReader(datasource.DataSourceReader):
    """A batch read. Travels to executors: options and a predicate, nothing else."""

    def __init__(self, options: SourceOptions) -> None:
        if options.mirror_group:
            raise BadOption("mirrorGroup is for streams: a batch read has no progress that somebody could follow")
        self._options = options
        self._predicate = Predicate()

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """A task for each (partition x key range x piece of offsets)."""
        with ClusterClient(self._options) as cluster:
            planned = PlannedRead(cluster, self._options)
            asked = self._predicate
            wanted = restricted(planned.batch(), asked.partitions, asked.low, asked.high)
            return input_partitions(planned.splits(wanted, asked.keys))

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Arrow record batches."""
        return read_split(self._options, partition)


class PushdownBatchReader(BatchReader):
    """A batch read that takes predicates on key, partition and offset."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802 - Spark's name
        """Take what narrows the read; all of those on keys are given back for Spark to look again."""
        self._predicate, left = self._predicate.narrowed(filters)
        return left


class StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; lives in one process of the driver, and as copies in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        if options.offset_ranges:
            raise BadOption("offsetRanges is for batch reads")
        if options.starting == LATEST:
            raise BadOption(
                "startingOffsets=latest: Spark asks a Python source twice and takes the second answer, so records "
                "between the two would be lost; resolve it once with kafka_share_proxy.kept_start(...)"
            )
        if options.ending != LATEST:
            raise BadOption("endingOffsets is for batch reads")
        self._options = options
        self._cluster: ClusterClient | None = None
        self._mirrored: MirroredProgress | None = None
        self._target: dict[TopicPartition, int] | None = None
        """Where an availableNow run ends."""

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: connections stay here."""
        return self.__dict__ | {"_cluster": None, "_mirrored": None}

    def _planned(self) -> PlannedRead:
        """On the connections that are kept from batch to batch: a broker closes them when they were idle for long,
        and the next call makes new ones.
        """
        if self._cluster is None:
            self._cluster = ClusterClient(self._options)
            if self._options.mirror_group:
                self._mirrored = MirroredProgress(self._cluster, self._options.mirror_group)
        return PlannedRead(self._cluster, self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start, the same whenever it is asked while no record is deleted."""
        planned = self._planned()
        return written(planned.resolved(self._options.starting, planned.places(), EARLIEST))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most `maxOffsetsPerTrigger` offsets in a batch, where it is set."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next batch ends. Spark asks when all in front of `start` is in its log of commits."""
        begun = read_written(start)
        planned = self._planned()
        if self._mirrored is not None:
            self._mirrored.reached(begun)
        places = planned.places()
        latest = planned.latest(places)
        begun |= planned.earliest([place for place in places if place not in begun])
        if self._target is not None:
            latest = {place: min(end, self._target.get(place, begun[place])) for place, end in latest.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        kept = {place: offset for place, offset in begun.items() if place not in latest}
        return written(admitted(begun, latest, most) | kept)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the logs end, for Spark's progress."""
        planned = self._planned()
        return written(planned.latest(planned.places()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Nothing that comes from now on is read."""
        planned = self._planned()
        self._target = planned.latest(planned.places())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        """The tasks of one batch; the same rows whenever it is planned, whatever the key ranges are."""
        begun, ends = read_written(start), read_written(end)
        planned = self._planned()
        first = planned.earliest([place for place in ends if place not in begun])
        return input_partitions(planned.splits(between(begun, ends, first)))

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Arrow record batches."""
        return read_split(self._options, partition)

    def stop(self) -> None:
        """Give the connections back; Spark does not always come to it, and then its process ends with them."""
        if self._cluster is not None:
            self._cluster.close()
