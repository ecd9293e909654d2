"""Parquet files that tasks write from lines: one per day and kind of events, and one for other lines.

See pipeline/README.md rule 27.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_share_proxy.pipeline.audit.event_lines import DAY_MS, Block, parsed_block
from kafka_share_proxy.wire.values import MIB

T = TypeVar("T")

WAITING_BYTES = 64 * MIB
"""Maximum size of the rows and lines that a task buffers before it writes them."""
COUNTERS = ("seq", "ts_ms", "first", "last", "t_acquire_ms", "start_offset", "renew_ms")
"""Columns whose values rise from row to row. They are stored as differences."""
LINES_SCHEMA = pa.schema([pa.field("value", pa.binary())])


class Written(NamedTuple):
    """A file that is complete."""

    day: str | None
    file: str


class _FileKey(NamedTuple):
    day: str | None
    kind: str | None


OTHER_LINES = _FileKey(None, None)


class EventFiles:
    """Files written by one task, with unique names for each attempt."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._waiting: dict[_FileKey, list[pa.Table]] = defaultdict(list)
        self._bytes = 0
        self.written: list[Written] = []

    def add(self, file_key: _FileKey, rows: pa.Table) -> None:
        self._waiting[file_key].append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= WAITING_BYTES:
            self.write()

    def write(self) -> None:
        for file_key, tables in self._waiting.items():
            name = f"part-{uuid4().hex}.snappy.parquet"
            temporary_path, whole = (self._folder / each for each in (f".{name}", name))
            _write(pa.concat_tables(tables), temporary_path)
            temporary_path.rename(whole)
            self.written.append(Written(file_key.day, name))
        self._waiting.clear()
        self._bytes = 0


def _write(rows: pa.Table, path: Path) -> None:
    """Write rows with types that Spark supports, and without Arrow's own schema."""
    numbers = [name for name in COUNTERS if name in rows.column_names]
    pq.write_table(
        rows,
        path,
        compression="snappy",
        use_dictionary=[name for name in rows.column_names if name not in (*numbers, "value")],
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        store_schema=False,
    )


def write_files(
    read: Callable[[T], Iterable[Block]], folder: str, batch: str, shares: Iterable[T]
) -> Iterator[Written]:
    """Return the files. Raises OSError, and what `read` raises."""
    files = EventFiles(folder)
    for block in chain.from_iterable(map(read, shares)):
        events, other_lines = parsed_block(block)
        for file_key, rows in _by_file_key(events):
            files.add(file_key, rows.append_column("ingest_batch", pa.repeat(pa.scalar(batch), len(rows))))
        if other_lines:
            files.add(OTHER_LINES, pa.table([pa.array(other_lines, pa.binary())], LINES_SCHEMA))
    files.write()
    return iter(files.written)


def _by_file_key(rows: pa.Table) -> Iterator[tuple[_FileKey, pa.Table]]:
    days: np.ndarray[Any, Any] = np.asarray(rows["ts_ms"]) // DAY_MS
    kinds = rows["kind"]
    for day in np.unique(days):
        of_day = days == day
        for kind in pc.unique(kinds).to_pylist():
            chosen = rows.filter(pc.and_(pc.equal(kinds, kind), pa.array(of_day)))
            if len(chosen):
                yield _FileKey((date(1970, 1, 1) + timedelta(days=int(day))).isoformat(), kind), chosen
