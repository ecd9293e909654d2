"""Files that tasks write are whole, of one kind and day each, and not too large (pipeline/README.md rule 27)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kafka_share_proxy.pipeline.audit import event_files
from kafka_share_proxy.pipeline.audit.event_lines import Block

from tests.support.audit_story import NOON, Proxy

DAY_MS = 86_400_000


def lines() -> list[str]:
    """100 settles and 100 renews on each of two days, and 10 lines of something else."""
    proxy = Proxy("p")
    for number in range(200):
        proxy.settle(NOON + number % 2 * DAY_MS, number, number)
        proxy.event("renew", NOON + number % 2 * DAY_MS, first=number, last=number)
    return [*proxy.lines, *(f"no event {number}" for number in range(10))]


def blocks(width: int) -> Iterator[Block]:
    """Return blocks of this many lines."""
    every = [line.encode() for line in lines()]
    return (Block(b"\n".join(every[at : at + width])) for at in range(0, len(every), width))


@pytest.mark.parametrize(("waiting", "least"), [(event_files.WAITING_BYTES, 5), (5_000, 20)])
def test_each_file_is_of_one_kind_and_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int, least: int
) -> None:
    monkeypatch.setattr(event_files, "WAITING_BYTES", waiting)
    written = list(event_files.write_files(blocks, str(tmp_path), "b7", [10]))
    assert sorted(each.file for each in written) == sorted(path.name for path in tmp_path.iterdir())
    assert len(written) >= least
    sequence_numbers, rejected_lines = [], []
    for each in written:
        table = pq.read_table(tmp_path / each.file, partitioning=None)
        if each.day is None:
            rejected_lines += table["value"].to_pylist()
            continue
        assert len(table["kind"].unique()) == 1
        assert table["ingest_batch"].unique().to_pylist() == ["b7"]
        days = {NOON: "2026-11-21", NOON + DAY_MS: "2026-11-22"}
        assert {days[at] for at in table["ts_ms"].to_pylist()} == {each.day}
        sequence_numbers += table["seq"].to_pylist()
    assert sorted(sequence_numbers) == list(range(1, 401))
    assert rejected_lines == [f"no event {number}".encode() for number in range(10)]


def test_a_task_that_dies_leaves_no_file_that_could_pass_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise OSError("no space is left")

    monkeypatch.setattr(Path, "rename", die)
    with pytest.raises(OSError, match="no space"):
        event_files.write_files(blocks, str(tmp_path), "b7", [10])
    assert [path.name[0] for path in tmp_path.iterdir()] == ["."]


def test_a_task_without_lines_writes_nothing(tmp_path: Path) -> None:
    assert list(event_files.write_files(lambda _: [Block(b"\n")], str(tmp_path), "b7", [1, 2])) == []
    assert list(tmp_path.iterdir()) == []
