"""Positions of the records in adjacent batches of one buffer, found in one pass.

Producers without linger write a batch for each record. The C extension `wire.records._record_positions` does the pass,
or the Python fallback here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.errors import RemoteProtocolError
from kafka_share_proxy.wire.records import records
from kafka_share_proxy.wire.records.record_positions import COLUMNS, EXTENSION, INT32_MAX, STARTS, RecordPositions
from kafka_share_proxy.wire.records.records import HEADER


def find_run(
    data: Buffer, start: int, end: int, *, check_crcs: bool = True
) -> tuple[RecordPositions, int, RemoteProtocolError | None]:
    """Return the positions, the end of the last valid batch, and the error in the next batch, or None.

    All batches are uncompressed, of magic 2, and have the same timestamp type. At most 2 GiB of `data` are used.
    """
    columns, run_end, reason = _find_run(data, start, end, check_crcs)
    return RecordPositions(columns), run_end, None if reason is None else RemoteProtocolError(reason)


def _python_find_run(data: Buffer, start: int, end: int, check_crcs: bool) -> tuple[bytes, int, str | None]:
    if not 0 <= start <= end <= min(len(data), INT32_MAX):
        raise ValueError("no such range of bytes, or more than 2 GiB")
    view = memoryview(data)[:end]
    columns = [array(code) for code in COLUMNS]
    reason = None
    try:
        for header in records.iter_batches(view, start):
            batch = view[start : header.end]
            if header.magic != 2 or header.compression:
                break
            if check_crcs and not records.has_valid_checksum(batch):
                raise RemoteProtocolError(f"the checksum of the record batch at offset {header.base_offset} is wrong")
            _append(columns, records.find_records(batch, header)[1], start + HEADER.size)
            start = header.end
    except RemoteProtocolError as error:
        reason = str(error)
    if reason is None and start < end:
        reason = f"there is no uncompressed record batch at byte {start}"
    return b"".join([column.tobytes() for column in columns]), start, reason


def _append(columns: list[array[int]], positions: RecordPositions, shift: int) -> None:
    before = columns[0][-1] if columns[0] else -1
    for row in zip(*(positions.column(number) for number in range(len(COLUMNS))), strict=True):
        if row[0] > before:
            for number, value in enumerate(row):
                columns[number].append(value + shift if number in STARTS else value)


_find_run: Callable[[Buffer, int, int, bool], tuple[bytes, int, str | None]]
_find_run = _python_find_run if EXTENSION is None else EXTENSION.find_run
