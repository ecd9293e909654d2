"""The Spark data source `sharegroup`, for `spark.readStream` (pipeline/README.md rules 42 to 49).

`ShareStream` makes the query. Without it, no process acquires records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kafka_share_proxy.pipeline.kafka.cluster import BlockingClusterClient
from kafka_share_proxy.pipeline.share.handover import HandoverClient
from kafka_share_proxy.pipeline.share.share_offsets import START, ShareOffset, decode_share_offset, encode_share_offset
from kafka_share_proxy.pipeline.share.share_options import ShareSourceOptions, read_share_options
from kafka_share_proxy.pipeline.source.options import BadOption
from kafka_share_proxy.pipeline.source.source import check_declared, input_partitions, read_split, schema_of
from kafka_share_proxy.pipeline.source.split_planning import PlannedRead
from kafka_share_proxy.pipeline.source.splits import make_splits
from kafka_share_proxy.wire.values import TopicPartition


class ShareSource(datasource.DataSource):
    """Records that a share group delivers to a job."""

    @classmethod
    def name(cls) -> str:
        return "sharegroup"

    def schema(self) -> str:
        return schema_of(read_share_options(self.options).source)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        del schema
        raise BadOption(
            "sharegroup is for spark.readStream: who reads a share group has to acknowledge, and a batch read cannot"
        )

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_share_options(self.options)
        check_declared(schema, options.source)
        return ShareStreamReader(options)


class ShareStreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream: one in a Python process of the driver, and copies in the tasks."""

    def __init__(self, options: ShareSourceOptions) -> None:
        """Raises BadOption if the query was not made by ShareStream."""
        if not options.acquirer:
            raise BadOption(
                "sharegroup: no process acquires records for this query; make it with kafka_share_proxy.ShareStream, "
                "or run kafka-share-proxy pipeline share"
            )
        self._options = options
        self._handover: HandoverClient | None = None
        self._target: dict[TopicPartition, int] | None = None
        """End offsets of an availableNow run."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handover": None}

    def _acquirer(self) -> HandoverClient:
        if self._handover is None:
            self._handover = HandoverClient(self._options.acquirer)
        return self._handover

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Acquire nothing: Spark may call this several times."""
        return encode_share_offset(START)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return `start` if no records are available."""
        del limit  # the job's process applies it
        before = decode_share_offset(start)
        if self._target is not None and _is_lagging(before, self._target):
            return start
        batch = self._acquirer().acquire(before.seq)
        return start if batch is None else encode_share_offset(batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the run after a batch with later records only."""
        with BlockingClusterClient(self._options.source) as cluster:
            planned = PlannedRead(cluster, self._options.source)
            self._target = planned.latest(planned.partitions())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        """Return exactly these offsets, even if the member that acquired them is gone."""
        batch = decode_share_offset(end)
        if batch.seq == decode_share_offset(start).seq:
            return []
        self._acquirer().planned(batch)
        source = self._options.source
        return input_partitions(make_splits(batch.tokens, batch.ids, source.ranges, source.offset_splits))

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        return read_split(self._options.source, partition)

    def stop(self) -> None:
        if self._handover is not None:
            self._handover.close()


def _is_lagging(batch: ShareOffset, target: Mapping[TopicPartition, int]) -> bool:
    """True if all records were appended after the run began."""
    return bool(batch.tokens) and all(span.start >= target.get(partition, 0) for partition, span in batch.tokens)
