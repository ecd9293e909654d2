"""Query plans for a few MiB of input, where planning and starting cost more than rows (pipeline/README.md rule 34).

A few thousand rows are processed faster by one task, without generated code, and by the driver itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_share_proxy.pipeline.tables.lake import HIDDEN
from kafka_share_proxy.wire.values import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES = 4 * MIB
"""Maximum size of small input, and of the tables that it is added to."""
SMALL_OFFSETS = 10_000
"""Maximum number of a topic's records that are small input."""
PACKED = 10
"""Assumed compression ratio of compressed files."""
PLANS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
"""A process of a few seconds gains more from a quick start than from optimised code."""


def bytes_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def is_small(source: Path, table: Path) -> bool:
    """Check sizes. The local table need not exist yet."""
    files = [each for each in source.iterdir() if each.is_file() and not each.name.startswith(HIDDEN)]
    return sum(each.stat().st_size for each in files) <= SMALL_BYTES and bytes_of(table) <= SMALL_BYTES


@contextmanager
def plans_for(spark: SparkSession, ours: Mapping[str, str], *, small: bool) -> Iterator[None]:
    """Plan for small input, if `small`. Settings of the user are kept."""
    before: dict[str, str | None] = {}
    configuration = spark.sparkContext.getConf()
    for name, value in PLANS.items() if small else ():
        if configuration.get(name) in (None, ours.get(name)):
            before[name] = spark.conf.get(name, None)
            spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
