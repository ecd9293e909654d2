"""A folder of Parquet tables that are overwritten by partition (pipeline/README.md rules 27 and 34)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from proxy.pipeline.files import Files
from proxy.wire.errors import ProxyError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STAGING = "_staging"
SCHEMA = "_schema.json"
"""In each table: one without a row has no file that tells its columns. Spark leaves out what begins with _."""

DAY, NO_DAY = "day=", "__HIVE_DEFAULT_PARTITION__"
"""How folders of days are called, and the one of rows without."""
HIDDEN = ("_", ".")
"""How the names of files begin that Spark leaves out."""


class LakeError(ProxyError):
    """A table cannot be changed; the text says what to do."""


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
        kept = f"{self.path(table)}/{SCHEMA}"
        reader = self._spark.read
        if self._files.exists(kept):
            reader = reader.schema(_schema_of(self._files.read(kept)))
        return reader.parquet(self.path(table))

    def overwrite(self, frame: DataFrame, table: str, partitions: Sequence[str]) -> None:
        """Replace those partitions of the table that are in the frame; no other."""
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy(*partitions).parquet(self.path(table))
        kept, schema = f"{self.path(table)}/{SCHEMA}", frame.schema.json()
        if not self._files.exists(kept) or self._files.read(kept) != schema:
            self._files.delete(kept)
            self._files.write(kept, schema)

    def staged(self, frame: DataFrame, name: str, partitions: Sequence[str] = ()) -> DataFrame:
        """The same rows, written beside the tables: what is to replace a table cannot be read from it."""
        path = self._staging(name)
        frame.write.mode("overwrite").partitionBy(*partitions).parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def local_staging(self, name: str) -> str | None:
        """A folder beside the tables where tasks write files themselves; None: no path leads to the lake."""
        local = self._files.local(self._staging(name))
        if local is not None:
            self._files.make(local)
        return local

    def collected(self, source: str, files: Iterable[tuple[str | None, str]], name: str, schema: str) -> DataFrame:
        """The rows of some files of a local staging folder, and of no others that are there.

        Args:
            source: the name of that folder.
            files: day, if it is of one, and name of each.
            name: what is staged of them.
            schema: in Spark's words; `day` as well.

        Raises:
            LakeError: a file cannot be moved, or is on another machine.
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
        """Of what was staged under that name, in order."""
        names = self._files.names(self._staging(name))
        return tuple(each.removeprefix(DAY) for each in names if each.startswith(DAY) and each != DAY + NO_DAY)

    def adopt(self, name: str, table: str, days: Sequence[str]) -> None:
        """Move the files of these days from what was staged under that name to the table. Raises LakeError."""
        for day in days:
            old, new = (f"{folder}/{DAY}{day}" for folder in (self._staging(name), self.path(table)))
            for file in self._files.names(old):
                if not file.startswith(HIDDEN):
                    self._move(f"{old}/{file}", new)

    def drop_staged(self) -> None:
        """Take away what was written beside the tables."""
        self._files.delete(f"{self.root}/{STAGING}")

    def _move(self, file: str, folder: str) -> None:
        if not self._files.move(file, folder):
            raise LakeError(f"{file} cannot be moved to {folder}: run the job again")

    def _staging(self, name: str) -> str:
        return f"{self.root}/{STAGING}/{name}"


def _schema_of(text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))
