"""Streaming query on a share group: acquires records, tasks read them, and they are acknowledged after the write.

See pipeline/README.md rules 42 to 49.

with ShareStream(spark, {"bootstrap": "proxy:9092", "topic": "orders", "group": "lake"}, "checkpoint") as orders:
    orders.start(write).awaitTermination()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from kafka_share_proxy.pipeline.share.acquirer import ShareAcquirer
from kafka_share_proxy.pipeline.share.handover import Handover
from kafka_share_proxy.pipeline.share.share_member import ShareMember
from kafka_share_proxy.pipeline.share.share_options import ACQUIRER, read_share_options
from kafka_share_proxy.pipeline.source.log_reader import note_on_stderr
from kafka_share_proxy.pipeline.source.starting import kept_share

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Write = Callable[["DataFrame", int], None]
"""Function (rows, batch id) that writes a batch. It must replace the output of an earlier call with the same id."""


class ShareStream:
    """Query with one checkpoint. It is a member of the group inside `with`."""

    def __init__(
        self,
        spark: SparkSession,
        given: Mapping[str, str],
        checkpoint: str,
        note: Callable[[str], None] = note_on_stderr,
    ) -> None:
        """Validate the options. The group is joined by `with`.

        Raises BadOption if an option is invalid, or the checkpoint belongs to another group or topic.
        """
        self.options = read_share_options(given)
        self.kept = kept_share(spark, self.options, checkpoint)
        self._spark, self._option_values, self._checkpoint, self._note = spark, dict(given), checkpoint, note
        self._open = ExitStack()
        self._is_started = False

    def __enter__(self) -> ShareStream:
        """Warm up Spark and join the group. Raises as ShareMember.

        A cold JVM needs seconds for its first tasks, while locks would be held.
        """
        _warm_up(self._spark)
        with ExitStack() as stack:
            self.member = stack.enter_context(ShareMember(self.options, self._note))
            source = self.options.source
            self.acquirer = ShareAcquirer(self.member, self.options.max_offsets, source.timeout_s)
            self._handover = stack.enter_context(Handover(self.acquirer))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def rows(self) -> DataFrame:
        """Stream of the records, for transformations by the caller."""
        options = self._option_values | {ACQUIRER: self._handover.path}
        return self._spark.readStream.format("sharegroup").options(**options).load()

    def start(
        self, write: Write, rows: DataFrame | None = None, *, name: str | None = None, once: bool = False
    ) -> StreamingQuery:
        """Start the query.

        Args:
            write: called for each batch. When it returns, the batch is acknowledged. After a crash, the batch may be
                passed again with the same id, and its records may be delivered again in other batches.
            rows: transformation of the property `rows`; None for the property itself.
            name: name of the query.
            once: end at the current end of the topics.

        Raises:
            ValueError: a query was started before. Two queries would acknowledge each other's records.
        """
        if self._is_started:
            raise ValueError("a ShareStream makes one query")
        self._is_started = True

        def written(batch: DataFrame, number: int) -> None:
            write(batch, number)
            self.acquirer.settle()

        writer = (self.rows if rows is None else rows).writeStream.foreachBatch(written)
        writer = writer.option("checkpointLocation", self._checkpoint)
        writer = writer.queryName(name) if name is not None else writer
        return (writer.trigger(availableNow=True) if once else writer).start()


def _warm_up(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    spark.range(0, slots, 1, slots).write.format("noop").mode("overwrite").save()
    spark.sparkContext.parallelize(range(slots), slots).foreachPartition(_load)


def _load(_rows: Iterable[int]) -> None:
    from kafka_share_proxy.pipeline.source import columns  # noqa: F401
