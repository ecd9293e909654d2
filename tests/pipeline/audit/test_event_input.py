"""Tasks read each line once (pipeline/README.md rule 27)."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from kafka_share_proxy.pipeline.audit import event_input
from kafka_share_proxy.pipeline.audit.event_input import FileRange, block_of, blocks_of_files, shares_of
from kafka_share_proxy.wire.values import MIB

NO_BREAK = "\u2028\u0085\v\f".encode()
"""Characters that end a line elsewhere, and not here."""


def read(path: Path, size: int, width: int) -> bytes:
    ranges = [FileRange(str(path), start, min(start + width, size), size) for start in range(0, size, width)]
    return b"".join(block.lines for block in blocks_of_files(ranges))


@pytest.mark.parametrize("sizes", [(4 * MIB, 65_536), (7, 3)])
def test_lines_are_read_once_however_a_file_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    for name, size in zip(("BLOCK_BYTES", "PEEK_BYTES"), sizes, strict=True):
        monkeypatch.setattr(event_input, name, size)
    dice = random.Random(11)
    lines = [bytes(dice.choices(b"abc{}", k=dice.choice([0, 1, 2, 9, 40]))) + NO_BREAK for _ in range(30)]
    path = tmp_path / "audit.jsonl"
    for last in (b"", b"cut short"):
        path.write_bytes(
            b"\xef\xbb\xbf" + b"".join(line + dice.choice([b"\n", b"\r", b"\r\n"]) for line in lines) + last
        )
        size = path.stat().st_size
        for width in (1, 2, 3, 10, 57, size):
            assert [line for line in read(path, size, width).split(b"\n") if line] == [*lines, last][
                : 30 + len(last[:1])
            ]


def test_lines_written_after_a_file_was_listed_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"one\ntwo\nthree\n")
    assert read(path, 6, 100) == b"one\ntw"
    assert read(path, 20, 5) == b"one\ntwo\nthree\n", "it was longer"
    path.write_bytes(b"")
    assert read(path, 20, 5) == b""


@pytest.mark.parametrize("peek_bytes", [65_536, 3])
def test_a_last_line_without_an_end_is_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peek_bytes: int
) -> None:
    monkeypatch.setattr(event_input, "PEEK_BYTES", peek_bytes)
    path = tmp_path / "audit.jsonl"
    for text, unfinished in ((b"one\ntwo", b"two"), (b"one\r\ntwo\n", b""), (b"", b""), (b"\xef\xbb\xbfone", b"one")):
        path.write_bytes(text)
        assert event_input.unfinished_line(str(path), len(text)) == unfinished
    path.write_bytes(b"one\ntwo\nthree")
    assert event_input.unfinished_line(str(path), 6) == b"tw", "what was written since is left out"


def test_each_byte_is_in_one_range_and_all_tasks_have_something_to_do() -> None:
    assert shares_of({"a": 0, "b": 5, "c": 0}, 2) == [(FileRange("b", 0, 5, 5),)]
    for sizes in ({"a": 100 * MIB, "b": 30 * MIB}, {str(number): MIB // 3 for number in range(400)}, {"a": 1 << 40}):
        shares = shares_of(sizes, 4)
        assert len(shares) >= 4
        ends = dict.fromkeys(sizes, 0)
        for each in (each for share in shares for each in share):
            assert (each.start, each.size) == (ends[each.path], sizes[each.path])
            ends[each.path] = each.end
        assert ends == sizes
        widths = [sum(each.end - each.start for each in share) for share in shares]
        assert max(widths) <= event_input.RANGE_BYTES_MOST
        assert min(map(sum, pairwise(widths))) > max(widths), "no two of them could be one"


def test_values_are_lines_even_if_they_hold_line_ends() -> None:
    batches = [["a", None, "", "b"], ["c", "d\ne", "f\r", "g"], [None]]
    assert [block_of(pa.array(each, pa.binary())) for each in batches] == [
        (b"a\n\nb\n", ()), (b"c\ng\n", [b"d\ne", b"f\r"]), (b"", ()),
    ]  # fmt: skip
