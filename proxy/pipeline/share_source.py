"""The Spark data source `sharegroup`, for `spark.readStream` (pipeline/README.md rules 42 to 49).

`ShareStream` makes the query; without one there is nobody who acquires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from proxy.pipeline.cluster import ClusterClient
from proxy.pipeline.handover import HandoverClient
from proxy.pipeline.options import BadOption
from proxy.pipeline.planning import PlannedRead
from proxy.pipeline.share_offsets import START, ShareOffset, read_written_share, written_share
from proxy.pipeline.share_options import ShareSourceOptions, read_share_options
from proxy.pipeline.source import check_declared, input_partitions, read_split, schema_of
from proxy.pipeline.splits import make_splits
from proxy.wire.values import TopicPartition


class ShareSource(datasource.DataSource):
    """Records that a share group gives to a job."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "sharegroup"

    def schema(self) -> str:
        """The columns that the options choose. Raises BadOption."""
        return schema_of(read_share_options(self.options).source)

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        """There is none. Raises BadOption."""
        del schema
        raise BadOption(
            "sharegroup is for spark.readStream: who reads a share group has to acknowledge, and a batch read cannot"
        )

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For a stream. Raises BadOption."""
        options = read_share_options(self.options)
        check_declared(schema, options.source)
        return ShareStreamReader(options)


class ShareStreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; lives in one process of the driver, and as copies in the tasks. The locks are held elsewhere."""

    def __init__(self, options: ShareSourceOptions) -> None:
        """Raises BadOption: no ShareStream made the query."""
        if not options.acquirer:
            raise BadOption(
                "sharegroup: nobody acquires for this query; make it with kafka_share_proxy.ShareStream, "
                "or run kafka-share-proxy pipeline share"
            )
        self._options = options
        self._handover: HandoverClient | None = None
        self._target: dict[TopicPartition, int] | None = None
        """Where an availableNow run ends."""

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: connections stay here."""
        return self.__dict__ | {"_handover": None}

    def _acquirer(self) -> HandoverClient:
        if self._handover is None:
            self._handover = HandoverClient(self._options.acquirer)
        return self._handover

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before the first batch: nothing is acquired for it, so it may be asked for any number of times."""
        return written_share(START)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The job's process limits batches."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The next batch, which is acquired now; the start where there is none."""
        del limit  # the job's process has it
        before = read_written_share(start)
        if self._target is not None and _is_behind(before, self._target):
            return start
        found = self._acquirer().acquire(before.seq)
        return start if found is None else written_share(found)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Once a batch has only records that come from now on, it was the last."""
        with ClusterClient(self._options.source) as cluster:
            planned = PlannedRead(cluster, self._options.source)
            self._target = planned.latest(planned.places())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[datasource.InputPartition]:
        """The tasks of one batch: exactly its offsets, also where those who acquired them are gone."""
        batch = read_written_share(end)
        if batch.seq == read_written_share(start).seq:
            return []
        self._acquirer().planned(batch)
        source = self._options.source
        return input_partitions(make_splits(batch.tokens, batch.ids, source.ranges, source.offset_splits))

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        """Arrow record batches."""
        return read_split(self._options.source, partition)

    def stop(self) -> None:
        """Nothing hangs on it: Spark does not always come to it."""
        if self._handover is not None:
            self._handover.close()


def _is_behind(batch: ShareOffset, target: Mapping[TopicPartition, int]) -> bool:
    """Whether it has nothing but records that came after a run began."""
    return bool(batch.tokens) and all(span.start >= target.get(place, 0) for place, span in batch.tokens)
