"""Lines of audit events as Arrow rows: most lines in one go, in executors (pipeline/README.md rules 26 and 27).

A line is decided here only where `audit_events.judged` would say the same: an event of COMMON_KINDS on a line of its
usual form. All other lines are handed on as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from proxy.pipeline.audit_events import COMMON, COMMON_KINDS, KEY, NEEDED, TS_MS_END, VERSION

LINE_BYTES = 1_000
"""Longer lines are handed on: names in lines are short, and Jackson takes no number of more digits."""
FEW_LINES = 64
"""Of lines that Arrow refuses so many are handed on together; more are halved, to find the one that it refused."""
DAY_MS = 86_400_000

ARROW_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
SCHEMA = pa.schema([
    pa.field(name.strip("`"), ARROW_TYPES[kind]) for name, kind in (each.split() for each in COMMON.split(", "))
])  # fmt: skip
"""Of the rows; as Spark has COMMON."""
PARSING = arrow_json.ParseOptions(explicit_schema=SCHEMA, newlines_in_values=False, unexpected_field_behavior="ignore")
NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:Inf|NaN)")
"""What Arrow takes for a number in a field that it ignores, and Jackson takes in some forms only."""
LINE_FEED, OPENING, CLOSING = b"\n{}"

Array = np.ndarray[Any, Any]


class Block(NamedTuple):
    """Some of what proxies wrote."""

    lines: bytes
    """Each with a line feed at its end; the last one may be without."""
    odd: Sequence[bytes] = ()
    """Those that hold line ends: a record of a topic may."""


class ParsedBlock(NamedTuple):
    """What a block is."""

    rows: pa.Table
    """Events, with the columns of SCHEMA."""
    others: list[bytes]
    """All other lines but empty ones."""


def parsed_block(block: Block) -> ParsedBlock:
    """Events of the common kinds as rows, and the lines of all else."""
    usual, others = _of_usual_form(block.lines)
    tables = [SCHEMA.empty_table()]
    waiting = [usual] if usual else []
    while waiting:
        lines = waiting.pop()
        rows = _parsed(lines)
        if rows is not None:
            common = _is_common(rows)
            others += _unlike(lines, common)
            tables.append(rows if common.all() else rows.filter(pa.array(common)))
        elif lines.count(b"\n") <= FEW_LINES:
            others += lines.split(b"\n")[:-1]
        else:
            middle = lines.index(b"\n", len(lines) // 2) + 1
            waiting += [lines[middle:], lines[:middle]]
    return ParsedBlock(pa.concat_tables(tables), [*others, *block.odd])


def _of_usual_form(text: bytes) -> tuple[bytes, list[bytes]]:
    """Lines that begin with the only `{` that they have and end with their only `}`; and all others but empty ones.

    Arrow looks for objects and not for lines. As no string may hold a line feed, the n-th object is the n-th of these
    lines. And pyarrow 26 dies of a line `null`.
    """
    framed = b"\n%b\n" % text.removesuffix(b"\n")
    view = np.frombuffer(framed, np.uint8)
    ends, opened, closed = (np.flatnonzero(view == each) for each in (LINE_FEED, OPENING, CLOSING))
    starts, ends = ends[:-1] + 1, ends[1:]
    usual = (view[starts] == OPENING) & (view[ends - 1] == CLOSING) & (ends - starts <= LINE_BYTES)
    inner = (opened[view[opened - 1] != LINE_FEED], closed[view[closed + 1] != LINE_FEED])
    usual[np.searchsorted(ends, np.concatenate(inner))] = False
    if usual.all():
        return framed[1:], []
    return _divided(framed, starts, ends, np.flatnonzero(~usual))


def _divided(framed: bytes, starts: Array, ends: Array, odd: Array) -> tuple[bytes, list[bytes]]:
    """All lines but the odd ones as one text, and the odd ones. `starts`, `ends`: of all lines."""
    places = list(zip(starts[odd].tolist(), ends[odd].tolist(), strict=True))
    between = zip([1, *(end + 1 for _, end in places)], [*(start for start, _ in places), len(framed)], strict=True)
    usual = b"".join([framed[begin:end] for begin, end in between])
    return usual, [framed[begin:end] for begin, end in places if begin < end]


def _parsed(lines: bytes) -> pa.Table | None:
    """A row for each line. None: there is something in them that Spark reads otherwise, or that cannot be read."""
    if b"\0" in lines or _has_odd_number(lines):
        return None
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        if not lines.isascii():
            lines.decode()
        rows = arrow_json.read_json(pa.BufferReader(lines), reading, PARSING)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return rows if len(rows) == lines.count(b"\n") else None


def _has_odd_number(lines: bytes) -> bool:
    """Single letters are looked for first, which takes no time: names and ids without them are many."""
    may_have = any(word[:1] in lines and word in lines for word in (b"Inf", b"NaN"))
    return may_have and NO_NUMBER.search(lines) is not None


def _is_common(rows: pa.Table) -> Array:
    """Of each row, whether it is of COMMON_KINDS and an event."""
    kind, at = rows["kind"], rows["ts_ms"]
    wanted = [
        pc.equal(rows["v"], VERSION),
        *(pc.is_valid(rows[name]) for name in KEY),
        pc.and_(pc.greater_equal(at, 0), pc.less(at, TS_MS_END)),
        pc.is_in(kind, value_set=pa.array(COMMON_KINDS)),
        *(pc.or_kleene(pc.not_equal(kind, each), _has(rows, NEEDED[each])) for each in NEEDED.keys() & COMMON_KINDS),
    ]
    return np.asarray(pc.fill_null(reduce(pc.and_kleene, wanted), False))


def _has(rows: pa.Table, needed: Sequence[str]) -> pa.ChunkedArray:
    """As `audit_events.condition` has it in SQL."""
    return reduce(
        pc.and_, (*(pc.is_valid(rows[name]) for name in needed), pc.greater_equal(rows["last"], rows["first"]))
    )


def _unlike(lines: bytes, common: Array) -> list[bytes]:
    """The lines of the rows that are no common events."""
    if common.all():
        return []
    each = lines.split(b"\n")
    return [each[number] for number in np.flatnonzero(~common)]
