"""A folder of Parquet tables that are overwritten by partition (pipeline/README.md rules 27 and 34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.pipeline.files import Files
from proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = "_staging"
"""Spark leaves out what begins with an underscore."""


class NoLake(ProxyError):
    """The folder has no such table; the text says which job makes it."""


class Lake:
    """Tables in a folder, or at a URL that Spark can write to."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._files = Files(spark)
        self.root = root.rstrip("/")

    def path(self, table: str) -> str:
        """Where a table is."""
        return f"{self.root}/{table}"

    def has(self, table: str) -> bool:
        """Whether it was ever written."""
        return self._files.exists(self.path(table))

    def read(self, table: str) -> DataFrame:
        """The whole table. Raises NoLake."""
        if not self.has(table):
            raise NoLake(f"{self.path(table)} is not there: run kafka-share-proxy pipeline audit --out {self.root}")
        return self._spark.read.parquet(self.path(table))

    def overwrite(self, frame: DataFrame, table: str, partitions: Sequence[str]) -> None:
        """Replace those partitions of the table that are in the frame; no other."""
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*partitions).parquet(self.path(table))

    def staged(self, frame: DataFrame, name: str) -> DataFrame:
        """The same rows, written beside the tables: what is to replace a table cannot be read from it."""
        path = f"{self.root}/{STAGING}/{name}"
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.parquet(path)

    def drop_staged(self) -> None:
        """Take away what was written beside the tables."""
        self._files.delete(f"{self.root}/{STAGING}")
