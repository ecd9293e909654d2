"""Lines of audit events, staged beside the tables as typed rows (pipeline/README.md rules 26 and 27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from proxy.pipeline.audit_events import COMMON, common, judged
from proxy.pipeline.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from proxy.pipeline.event_lines import Block

WRITTEN, LEFT = "written", "left"
"""Names of what tasks wrote; of it, lines that are left for Spark."""
DIRECT, PARSED, JUDGED = "direct", "parsed", "judged"
"""Names of events of the common kinds, as tasks wrote them or as Spark parsed them; and of all else."""
EVENT_ROWS = f"{COMMON}, ingest_batch string, day string"
"""As `event_files` writes them."""


class DirectInput(NamedTuple):
    """Lines that tasks can read themselves."""

    shares: Sequence[Any]
    """What each task reads, as plain values."""
    read: Callable[[Any], Iterator[Block]]
    """Reads a share."""
    rest: DataFrame | None
    """The lines that are in no share, in a column `value`; None: there are none."""


class Lines(NamedTuple):
    """What was written by proxies."""

    batch: str
    """Names exactly this input: the same again has the same name."""
    frame: DataFrame
    """All lines, in a column `value`."""
    direct: DirectInput
    """The same lines."""


def staged(spark: SparkSession, lake: Lake, lines: Lines) -> dict[str, DataFrame]:
    """What the lines are: events of the common kinds, and under JUDGED all else, as `audit_events.judged` has it.

    Tasks read lines and write files themselves where they can, for half of the CPU, and otherwise Spark does. Only
    what successful tasks tell of is taken: another attempt may have left files as well.
    """
    lake.drop_staged()
    folder = lake.local_staging(WRITTEN)
    if folder is None:
        return _through_spark(lake, lines.frame, lines.batch)
    events, left = _written(spark, lake, folder, lines)
    rest = left if lines.direct.rest is None else left.unionAll(lines.direct.rest)
    return {DIRECT: events} | _through_spark(lake, rest, lines.batch)


def _written(spark: SparkSession, lake: Lake, folder: str, lines: Lines) -> tuple[DataFrame, DataFrame]:
    """Events that tasks made files of, and the lines they left."""
    from proxy.pipeline.event_files import write_files

    shares = lines.direct.shares
    tasks = spark.sparkContext.parallelize(shares, max(1, len(shares)))
    files = tasks.mapPartitions(partial(write_files, lines.direct.read, folder, lines.batch)).collect()
    events = lake.collected(WRITTEN, [each for each in files if each.day is not None], DIRECT, EVENT_ROWS)
    left = lake.collected(WRITTEN, [each for each in files if each.day is None], LEFT, "value binary")
    return events, left.selectExpr("cast(value as string) as value")


def _through_spark(lake: Lake, lines: DataFrame, batch: str) -> dict[str, DataFrame]:
    """Each line is parsed once, and rare ones once more."""
    parsed = lake.staged(common(lines, batch), PARSED, ["day"])
    others = parsed.where("day is null").selectExpr("line as value")
    return {PARSED: parsed.drop("line"), JUDGED: lake.staged(judged(others, batch), JUDGED, ["day"])}
