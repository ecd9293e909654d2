"""Lines of audit events, read by the tasks themselves from files and topics, in blocks (pipeline/README.md rule 26)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kafka_share_proxy.pipeline.audit.event_lines import Block
from kafka_share_proxy.pipeline.source.columns import BatchMaker
from kafka_share_proxy.pipeline.source.log_reader import LogReader
from kafka_share_proxy.pipeline.source.options import SourceOptions
from kafka_share_proxy.pipeline.source.splits import Split
from kafka_share_proxy.wire.values import MIB

BLOCK_BYTES = 4 * MIB
"""Maximum size of a block of lines that is parsed together."""
PEEK_BYTES = 65_536
RANGE_BYTES_MOST, RANGE_BYTES_LEAST = 64 * MIB, 4 * MIB
"""Limits of the bytes of files that one task reads."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark at the start of a file. It is not part of the first line."""


class FileRange(NamedTuple):
    """Lines of a file that begin in a range of its bytes."""

    path: str
    start: int
    end: int
    size: int
    """Size of the file when it was listed. Later lines are left out."""


def shares_of(sizes: Mapping[str, int], tasks: int) -> list[tuple[FileRange, ...]]:
    """Divide files (path -> bytes) into ranges for each of about `tasks` tasks."""
    width = max(RANGE_BYTES_LEAST, min(RANGE_BYTES_MOST, -(-sum(sizes.values()) // tasks)))
    shares: list[tuple[FileRange, ...]] = []
    room = 0
    for path, size in sizes.items():
        for start in range(0, size, width):
            file_range = FileRange(path, start, min(start + width, size), size)
            if (length := file_range.end - start) > room:
                shares.append(())
                room = width
            shares[-1] += (file_range,)
            room -= length
    return shares


def blocks_of_files(ranges: Iterable[FileRange]) -> Iterator[Block]:
    for each in ranges:
        with Path(each.path).open("rb", buffering=0) as file:
            yield from _blocks(file.fileno(), each)


def _blocks(file: int, file_range: FileRange) -> Iterator[Block]:
    size = min(file_range.size, os.fstat(file).st_size)
    begin, end = (min(_line_start(file, at), size) for at in (file_range.start, file_range.end))
    while begin < end:
        cut = min(_line_start(file, min(begin + BLOCK_BYTES, end)), end)
        text = os.pread(file, cut - begin, begin)
        if begin == 0:
            text = text.removeprefix(BYTE_ORDER_MARK)
        yield Block(text.replace(b"\r", b"\n") if b"\r" in text else text)
        begin = cut


def unfinished_line(path: str, size: int) -> bytes:
    """Return the last line of the first `size` bytes of a plain file if it has no line end, otherwise empty bytes.
    Raises OSError.
    """
    with Path(path).open("rb", buffering=0) as file:
        text, begin = b"", size
        while begin and not (b"\n" in text or b"\r" in text) and len(text) < BLOCK_BYTES:
            begin = max(0, begin - PEEK_BYTES)
            text = os.pread(file.fileno(), size - begin, begin)
    return text.replace(b"\r", b"\n").rpartition(b"\n")[2].removeprefix(BYTE_ORDER_MARK)


def _line_start(file: int, at: int) -> int:
    """Find the next line, by the line ends of Spark."""
    if at == 0:
        return 0
    at -= 1
    while chunk := os.pread(file, PEEK_BYTES, at):
        ends = [position for position in (chunk.find(b"\n"), chunk.find(b"\r")) if position >= 0]
        if ends:
            return at + min(ends) + 1
        at += len(chunk)
    return at


def blocks_of_split(options: SourceOptions, split: Split) -> Iterator[Block]:
    """Yield each value as a line. Raises as `LogReader.records`."""
    maker = BatchMaker(("value",), split.topic_partition, options.ranges)
    for batch in maker.batches(LogReader(options, split).records()):
        yield block_of(batch.column(0))


def block_of(values: pa.Array) -> Block:
    """Return a block. Values with line breaks are kept apart."""
    values = values.drop_null()
    text = _joined(values)
    if text.count(b"\n") == len(values) and b"\r" not in text:
        return Block(text)
    several = [b"\n" in value or b"\r" in value for value in values.to_pylist()]
    odd = pa.array(several, pa.bool_())
    return Block(_joined(values.filter(pc.invert(odd))), values.filter(odd).to_pylist())


def _joined(values: pa.Array) -> bytes:
    each = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return bytes(pc.binary_join(each, b"\n")[0].as_py() + b"\n" if len(values) else b"")
