"""Folder of tables that are overwritten by partition (pipeline/README.md rules 27 and 34)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafka_share_proxy.pipeline.tables.delta_tables import LOG, DeltaTables
from kafka_share_proxy.pipeline.tables.files import Files, LakeError
from kafka_share_proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STAGING = "_staging"
PARQUET, DELTA = "parquet", "delta"
SCHEMA = "_schema.json"
"""File with the schema of a table: a table without rows has no data file. Spark ignores names that begin with _."""

DAY, NO_DAY = "day=", "__HIVE_DEFAULT_PARTITION__"
"""Prefix of the folders of days, and the value for rows without a day."""
HIDDEN = ("_", ".")
"""Prefixes of file names that Spark ignores."""


class NoLake(ProxyError):
    """The lake has no such table."""


class Lake:
    """Tables in a folder, or at a URL that Spark can write to."""

    def __init__(self, spark: SparkSession, root: str, table_format: str | None = None) -> None:
        """`table_format`: format of new tables of records."""
        self._spark = spark
        self._files = Files(spark)
        self._format = table_format
        self.delta = DeltaTables(spark)
        self.root = root.rstrip("/")

    def check_writable(self, table: str | None = None) -> None:
        """Raise LakeError before a job reads a topic. `table`: None if only Parquet is written."""
        self._files.check_writable(self.root)
        if table is None:
            return
        if self.has(table):
            present = DELTA if self.delta.is_delta(self.path(table)) else PARQUET
            if self._format not in (None, present):
                raise LakeError(f"{self.path(table)} is of format {present}: leave --format out, or name another --out")
        if self.is_delta(table):
            self.delta.check(self.path(table))

    def is_delta(self, table: str) -> bool:
        """Return True if a table is a Delta table, or becomes one when it is created."""
        return self.delta.is_delta(self.path(table)) or (self._format == DELTA and not self.has(table))

    def path(self, table: str) -> str:
        return f"{self.root}/{table}"

    def has(self, table: str) -> bool:
        names = self._files.names(self.path(table))
        return any(name in (SCHEMA, LOG) or not name.startswith(HIDDEN) for name in names)

    def size(self, table: str) -> int:
        return self._files.size(self.path(table))

    def read(self, table: str) -> DataFrame:
        if not self.has(table):
            raise NoLake(f"{self.path(table)} is not there: run kafka-share-proxy pipeline audit --out {self.root}")
        if self.delta.is_delta(self.path(table)):
            return self.delta.read(self.path(table))
        schema_path = f"{self.path(table)}/{SCHEMA}"
        reader = self._spark.read
        if self._files.exists(schema_path):
            reader = reader.schema(_schema_of(self._files.read(schema_path)))
        return reader.parquet(self.path(table))

    def overwrite(self, frame: DataFrame, table: str, partitions: Sequence[str], files: int | None = None) -> None:
        """Write a frame, which replaces only the partitions in it. `files`: maximum number of tasks that write."""
        if files is not None:
            frame = frame.coalesce(files)
        if self.is_delta(table):
            self.delta.replace(frame, self.path(table), partitions)
            return
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*partitions).parquet(self.path(table))
        schema_path, schema = f"{self.path(table)}/{SCHEMA}", frame.schema.json()
        if not self._files.exists(schema_path) or self._files.read(schema_path) != schema:
            self._files.write(schema_path, schema)

    def staged(self, frame: DataFrame, name: str, partitions: Sequence[str] = ()) -> DataFrame:
        """Write rows to staging: a table cannot be read while it is replaced."""
        path = self._staging(name)
        frame.write.mode("overwrite").partitionBy(*partitions).parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def local_staging(self, name: str) -> str | None:
        """Return the local path of a staging folder, or None if the lake has no local path."""
        local = self._files.local(self._staging(name))
        if local is not None:
            self._files.make(local)
        return local

    def collected(self, source: str, files: Iterable[tuple[str | None, str]], name: str, schema: str) -> DataFrame:
        """Return the rows of some files of local staging.

        `files`: day, or None, and name of each. `schema`: DDL of the columns, with `day`. Raises LakeError if a file
        cannot be moved, or is on another machine.
        """
        path = self._staging(name)
        self._files.make(path)
        for day, file in files:
            written = f"{self._staging(source)}/{file}"
            if not self._files.exists(written):
                raise LakeError(f"{written} was written by a task and is not here: mount {self.root} on all machines")
            self._move(written, path if day is None else f"{path}/{DAY}{day}")
        return self._spark.read.schema(schema).parquet(path)

    def days(self, name: str) -> tuple[str, ...]:
        """Return the days of the staged rows, in order."""
        names = self._files.names(self._staging(name))
        return tuple(each.removeprefix(DAY) for each in names if each.startswith(DAY) and each != DAY + NO_DAY)

    def adopt(self, name: str, table: str, days: Sequence[str]) -> None:
        """Move staged files of these days into a table."""
        for day in days:
            old, new = (f"{folder}/{DAY}{day}" for folder in (self._staging(name), self.path(table)))
            for file in self._files.names(old):
                if not file.startswith(HIDDEN):
                    self._move(f"{old}/{file}", new)

    def drop_staged(self) -> None:
        """Delete all staging folders."""
        self._files.delete(f"{self.root}/{STAGING}")

    def _move(self, file: str, folder: str) -> None:
        if not self._files.move(file, folder):
            raise LakeError(f"{file} cannot be moved to {folder}: run the job again")

    def _staging(self, name: str) -> str:
        return f"{self.root}/{STAGING}/{name}"


def _schema_of(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))
