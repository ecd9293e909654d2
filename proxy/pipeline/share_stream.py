"""A streaming query on a share group: acquired here, read by tasks, acknowledged once it is written.

See pipeline/README.md rules 42 to 49.

with ShareStream(spark, {"bootstrap": "proxy:9092", "topic": "orders", "group": "lake"}, "checkpoint") as orders:
    orders.start(write).awaitTermination()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from proxy.pipeline.acquirer import ShareAcquirer
from proxy.pipeline.handover import Handover
from proxy.pipeline.log_reader import note_on_stderr
from proxy.pipeline.share_member import ShareMember
from proxy.pipeline.share_options import ACQUIRER, read_share_options
from proxy.pipeline.starting import kept_share

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Write = Callable[["DataFrame", int], None]
"""(rows, batch id): what it wrote for this batch id before, it replaces."""


class ShareStream:
    """One query of one checkpoint; a member of the group from `with` to its end."""

    def __init__(
        self,
        spark: SparkSession,
        given: Mapping[str, str],
        checkpoint: str,
        note: Callable[[str], None] = note_on_stderr,
    ) -> None:
        """Check all of it; nothing is joined yet.

        Args:
            spark: a session with the source.
            given: options of `sharegroup`.
            checkpoint: folder of this stream.
            note: is told what a person should know.

        Raises:
            BadOption: an option, or the checkpoint is that of another group or topic.
        """
        self.options = read_share_options(given)
        self.kept = kept_share(spark, self.options, checkpoint)
        self._spark, self._given, self._checkpoint, self._note = spark, dict(given), checkpoint, note
        self._open = ExitStack()
        self._is_started = False

    def __enter__(self) -> ShareStream:
        """Warm Spark up, and join. Raises as ShareMember.

        A cold JVM takes seconds for its first tasks, which locks would wait for.
        """
        _warm_up(self._spark)
        with ExitStack() as stack:
            self.member = stack.enter_context(ShareMember(self.options, self._note))
            source = self.options.source
            self.acquirer = ShareAcquirer(self.member, self.options.max_offsets, source.timeout_s)
            self._handover = stack.enter_context(Handover(self.acquirer))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what is held, and leave the group."""
        self._open.close()

    @property
    def rows(self) -> DataFrame:
        """The stream, to make columns of."""
        options = self._given | {ACQUIRER: self._handover.path}
        return self._spark.readStream.format("sharegroup").options(**options).load()

    def start(
        self, write: Write, rows: DataFrame | None = None, *, name: str | None = None, once: bool = False
    ) -> StreamingQuery:
        """Begin.

        Args:
            write: is called for each batch; when it returns, what the batch holds is acknowledged. A batch may come
                again after a crash, under its id; records may come again in other batches.
            rows: made of `rows`; None: these.
            name: of the query.
            once: end at what the topics have now.

        Raises:
            ValueError: a query was started before: two would acknowledge for each other.
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
    """Have the JVM compile, and workers start and load what tasks need."""
    slots = spark.sparkContext.defaultParallelism
    spark.range(0, slots, 1, slots).write.format("noop").mode("overwrite").save()
    spark.sparkContext.parallelize(range(slots), slots).foreachPartition(_load)


def _load(_rows: Iterable[int]) -> None:
    from proxy.pipeline import columns  # noqa: F401
