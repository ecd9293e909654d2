"""Fast parser of audit events to Arrow rows, for use in executors (pipeline/README.md rules 26 and 27).

A line is parsed here only if the result equals that of `audit_events.parse_fully`: an event of COMMON_KINDS on a line
of the usual form.
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

from kafka_share_proxy.pipeline.audit.audit_events import COMMON, COMMON_KINDS, KEY, NEEDED, TS_MS_END, VERSION

LINE_BYTES = 1_000
"""Maximum size of a line that is parsed here."""
FEW_LINES = 64
"""Number of lines that are left unparsed together if Arrow rejects one of them."""
DAY_MS = 86_400_000

ARROW_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
SCHEMA = pa.schema([
    pa.field(name.strip("`"), ARROW_TYPES[kind]) for name, kind in (each.split() for each in COMMON.split(", "))
])  # fmt: skip
PARSING = arrow_json.ParseOptions(explicit_schema=SCHEMA, newlines_in_values=False, unexpected_field_behavior="ignore")
NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:Inf|NaN)")
"""Pattern of numbers that Arrow accepts in a field that it ignores, but Jackson accepts in some forms only."""
LINE_FEED, OPENING, CLOSING = b"\n{}"

Array = np.ndarray[Any, Any]


class Block(NamedTuple):
    """Some lines that proxies wrote."""

    lines: bytes
    """Each line has a line feed at its end, except possibly the last one."""
    odd: Sequence[bytes] = ()
    """Lines with line ends inside, which records of a topic may have."""


class ParsedBlock(NamedTuple):
    """Parsed content of a block."""

    rows: pa.Table
    """Events of the common kinds."""
    other_lines: list[bytes]


def parsed_block(block: Block) -> ParsedBlock:
    """Parse a block. Lines that Arrow rejects are halved until few are left, which are not parsed here."""
    usual, other_lines = _of_common_form(block.lines)
    tables = [SCHEMA.empty_table()]
    waiting = [usual] if usual else []
    while waiting:
        lines = waiting.pop()
        rows = _parsed(lines)
        if rows is not None:
            common = _is_common(rows)
            other_lines += _lines_of_other_kinds(lines, common)
            tables.append(rows if common.all() else rows.filter(pa.array(common)))
        elif lines.count(b"\n") <= FEW_LINES:
            other_lines += lines.split(b"\n")[:-1]
        else:
            middle = lines.index(b"\n", len(lines) // 2) + 1
            waiting += [lines[middle:], lines[:middle]]
    return ParsedBlock(pa.concat_tables(tables), [*other_lines, *block.odd])


def _of_common_form(text: bytes) -> tuple[bytes, list[bytes]]:
    """Return lines of the usual form, which begin with their only `{` and end with their only `}`, and all others.

    Arrow parses objects and not lines. Because no string may contain a line feed, the n-th object is on the n-th of
    these lines. In addition, pyarrow 26 crashes on a line `null`.
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
    return _separate(framed, starts, ends, np.flatnonzero(~usual))


def _separate(framed: bytes, starts: Array, ends: Array, odd: Array) -> tuple[bytes, list[bytes]]:
    """Return all lines without the odd ones, and the odd ones."""
    odd_bounds = list(zip(starts[odd].tolist(), ends[odd].tolist(), strict=True))
    between = zip(
        [1, *(end + 1 for _, end in odd_bounds)], [*(start for start, _ in odd_bounds), len(framed)], strict=True
    )
    usual = b"".join([framed[begin:end] for begin, end in between])
    return usual, [framed[begin:end] for begin, end in odd_bounds if begin < end]


def _parsed(lines: bytes) -> pa.Table | None:
    """Parse lines with Arrow. Return None if it cannot, or if Spark would parse some of them differently."""
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
    """Search single letters first, which is fast."""
    may_have = any(word[:1] in lines and word in lines for word in (b"Inf", b"NaN"))
    return may_have and NO_NUMBER.search(lines) is not None


def _is_common(rows: pa.Table) -> Array:
    kind, at = rows["kind"], rows["ts_ms"]
    conditions = [
        pc.equal(rows["v"], VERSION),
        *(pc.is_valid(rows[name]) for name in KEY),
        pc.and_(pc.greater_equal(at, 0), pc.less(at, TS_MS_END)),
        pc.is_in(kind, value_set=pa.array(COMMON_KINDS)),
        *(
            pc.or_kleene(pc.not_equal(kind, each), _has_needed(rows, NEEDED[each]))
            for each in NEEDED.keys() & COMMON_KINDS
        ),
    ]
    return np.asarray(pc.fill_null(reduce(pc.and_kleene, conditions), False))


def _has_needed(rows: pa.Table, needed: Sequence[str]) -> pa.ChunkedArray:
    """Return the same condition as `audit_events.condition` has in SQL."""
    return reduce(
        pc.and_, (*(pc.is_valid(rows[name]) for name in needed), pc.greater_equal(rows["last"], rows["first"]))
    )


def _lines_of_other_kinds(lines: bytes, common: Array) -> list[bytes]:
    """Return the lines of a block where `common` is False."""
    if common.all():
        return []
    each = lines.split(b"\n")
    return [each[number] for number in np.flatnonzero(~common)]
