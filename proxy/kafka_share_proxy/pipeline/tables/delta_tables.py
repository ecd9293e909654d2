"""Delta tables, whose readers see either all of a batch or compaction or nothing of it (pipeline/README.md rule 59).

Spark's tasks write Parquet files as for any table. Then the driver commits them with the library `deltalake`, which
needs neither jars nor a certain release of Spark. Replaced files stay readable for older versions until `vacuum`.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from kafka_share_proxy.pipeline.tables.files import Files, LakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG, NEW = "_delta_log", "_new"
"""Folders in a table: Delta's log, and files that are not committed yet."""
NULL = "__HIVE_DEFAULT_PARTITION__"
EXTRA = "kafka-share-proxy[delta]"

Place = tuple[str | None, ...]


class DeltaFile(NamedTuple):
    """A file of the current version of a table."""

    path: str
    place: Place
    size: int


class DeltaTables:
    """Delta tables on local or mounted file systems."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._files = spark, Files(spark)

    def is_delta(self, path: str) -> bool:
        return self._files.exists(f"{path}/{LOG}")

    def check(self, path: str) -> None:
        """Raise LakeError if no Delta table can be written to the path."""
        _library()
        self._local(path)

    def read(self, path: str) -> DataFrame:
        from pyspark.sql.types import StructType

        table = _library().DeltaTable(self._local(path))
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        files = table.file_uris()
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).option("basePath", self._local(path)).parquet(*files)

    def files(self, path: str, partitions: Sequence[str]) -> list[DeltaFile]:
        return _files_of(_library().DeltaTable(self._local(path)), partitions)

    def replace(
        self,
        frame: DataFrame,
        path: str,
        partitions: Sequence[str],
        removed: Collection[Place] = (),
        rows: int | None = None,
    ) -> None:
        """Write a frame, which replaces its partitions and those in `removed`, in one commit.

        `rows`: number of rows that the frame must have. Raises LakeError if it has another number, or another writer
        has removed the same files.
        """
        library, local = _library(), self._local(path)
        schema = library.Schema.from_json(frame.schema.json())
        table = library.DeltaTable.create(local, schema, partition_by=list(partitions), mode="ignore")
        _add_columns(table, schema)
        staged = Path(local, NEW, uuid4().hex)
        try:
            frame.write.mode("overwrite").partitionBy(*partitions).parquet(str(staged))
            written = [each for each in sorted(staged.rglob("*.parquet")) if not each.name.startswith(("_", "."))]
            added = [_added(library, staged, each, partitions) for each in written]
            count = sum(json.loads(action.stats)["numRecords"] for action, _ in added)
            if rows is not None and count != rows:
                raise LakeError(f"{rows} rows became {count}: nothing was replaced; run the job again")
            for action, file in added:
                target = Path(local, action.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.rename(target)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        replaced = {*removed, *(tuple(action.partition_values.values()) for action, _ in added)}
        now = _now_ms()
        actions = [action for action, _ in added] + [
            library.transaction.RemoveAction(
                path=each.path,
                data_change=True,
                deletion_timestamp=now,
                size=each.size,
                partition_values=dict(zip(partitions, each.place, strict=True)),
            )
            for each in _files_of(table, partitions)
            if each.place in replaced
        ]
        if actions:
            _commit(library, table, actions, partitions)

    def vacuum(self, path: str) -> int:
        """Delete replaced files that no version of the last week needs. Raises LakeError."""
        return len(_library().DeltaTable(self._local(path)).vacuum(dry_run=False))

    def _local(self, path: str) -> str:
        local = self._files.local(path)
        if local is None:
            raise LakeError(f"{path}: Delta is written to local and mounted file systems only: --format parquet")
        return local


def _library() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError as error:
        raise LakeError(f"a Delta table needs the library deltalake ({error}): install {EXTRA}") from None
    return deltalake


def _added(library: Any, staged: Path, file: Path, partitions: Sequence[str]) -> tuple[Any, Path]:
    """Return the action, and the current path of the file."""
    import pyarrow.parquet as pq

    inside = file.relative_to(staged)
    values_by_column = dict(part.split("=", 1) for part in inside.parts[:-1])
    values = {name: None if values_by_column[name] == NULL else unquote(values_by_column[name]) for name in partitions}
    status, count = file.stat(), pq.read_metadata(file).num_rows
    stats = json.dumps({"numRecords": count})
    return library.transaction.AddAction(inside.as_posix(), status.st_size, values, _now_ms(), True, stats), file


def _files_of(table: Any, partitions: Sequence[str]) -> list[DeltaFile]:
    import pyarrow as pa

    listed: list[Mapping[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        DeltaFile(row["path"], tuple(row[f"partition.{name}"] for name in partitions), row["size_bytes"])
        for row in listed
    ]


def _add_columns(table: Any, schema: Any) -> None:
    existing = {field.name for field in table.schema().fields}
    new = [field for field in schema.fields if field.name not in existing]
    if new:
        table.alter.add_columns(new)


def _commit(library: Any, table: Any, actions: list[Any], partitions: Sequence[str]) -> None:
    try:
        table.create_write_transaction(actions, "append", table.schema(), list(partitions))
    except library.exceptions.CommitFailedError as error:
        raise LakeError(f"another writer changed the table at the same time: {error}: run the job again") from None


def _now_ms() -> int:
    return int(time.time() * 1000)
