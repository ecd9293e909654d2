"""Lines that proxies wrote, in blocks, as tasks read them themselves: of files and of topics (pipeline/README.md rule
26)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from proxy.pipeline.columns import BatchMaker
from proxy.pipeline.event_lines import Block
from proxy.pipeline.log_reader import LogReader
from proxy.pipeline.options import SourceOptions
from proxy.pipeline.splits import Split
from proxy.wire.values import MIB

BLOCK_BYTES = 4 * MIB
"""Of lines that are parsed at a time; one that is longer is a block of its own."""
LOOK_BYTES = 65_536
"""Read at a time where the end of a line is looked for."""
RANGE_BYTES_MOST, RANGE_BYTES_LEAST = 64 * MIB, 4 * MIB
"""Of files, that a task reads."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""At the start of a file, it is not of its first line: Spark leaves it out, too."""


class FileRange(NamedTuple):
    """The lines of a file that begin in a range of its bytes."""

    path: str
    """As the machines of the executors have it."""
    start: int
    end: int
    size: int
    """Of the file, when it was listed: what was written since is left out."""


def shares_of(sizes: Mapping[str, int], tasks: int) -> list[tuple[FileRange, ...]]:
    """Each byte of files in one range, and what each task reads.

    Args:
        sizes: path -> bytes.
        tasks: so many should have something to do, if there is enough.
    """
    width = max(RANGE_BYTES_LEAST, min(RANGE_BYTES_MOST, -(-sum(sizes.values()) // tasks)))
    shares: list[tuple[FileRange, ...]] = []
    room = 0
    for path, size in sizes.items():
        for start in range(0, size, width):
            found = FileRange(path, start, min(start + width, size), size)
            if (taken := found.end - start) > room:
                shares.append(())
                room = width
            shares[-1] += (found,)
            room -= taken
    return shares


def blocks_of_files(ranges: Iterable[FileRange]) -> Iterator[Block]:
    """Their lines, a block at a time. Raises OSError."""
    for each in ranges:
        with Path(each.path).open("rb", buffering=0) as file:
            yield from _blocks(file.fileno(), each)


def _blocks(file: int, asked: FileRange) -> Iterator[Block]:
    size = min(asked.size, os.fstat(file).st_size)
    begin, end = (min(_line_start(file, at), size) for at in (asked.start, asked.end))
    while begin < end:
        cut = min(_line_start(file, min(begin + BLOCK_BYTES, end)), end)
        text = os.pread(file, cut - begin, begin)
        if begin == 0:
            text = text.removeprefix(BYTE_ORDER_MARK)
        yield Block(text.replace(b"\r", b"\n") if b"\r" in text else text)
        begin = cut


def _line_start(file: int, at: int) -> int:
    """Where the first line begins that does so at an offset or behind it; a line ends as Spark has it."""
    if at == 0:
        return 0
    at -= 1
    while seen := os.pread(file, LOOK_BYTES, at):
        ends = [place for place in (seen.find(b"\n"), seen.find(b"\r")) if place >= 0]
        if ends:
            return at + min(ends) + 1
        at += len(seen)
    return at


def blocks_of_split(options: SourceOptions, split: Split) -> Iterator[Block]:
    """The records of some offsets, each a line. Raises as `LogReader.records`."""
    maker = BatchMaker(("value",), split.place, options.ranges)
    for batch in maker.batches(LogReader(options, split).records()):
        yield block_of(batch.column(0))


def block_of(values: pa.Array) -> Block:
    """Each value is a line, whatever it holds."""
    values = values.drop_null()
    text = _joined(values)
    if text.count(b"\n") == len(values) and b"\r" not in text:
        return Block(text)
    several = [b"\n" in value or b"\r" in value for value in values.to_pylist()]
    odd = pa.array(several, pa.bool_())
    return Block(_joined(values.filter(pc.invert(odd))), values.filter(odd).to_pylist())


def _joined(values: pa.Array) -> bytes:
    """With a line feed after each."""
    each = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return bytes(pc.binary_join(each, b"\n")[0].as_py() + b"\n" if len(values) else b"")
