"""Audit events in a file: whole lines, rotated by size, never waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from kafka_share_proxy.app.observing import audit_file
from kafka_share_proxy.app.observing.audit_file import AuditFile


class Received:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **context: object) -> None:
        self.events.append(event)


def lines(*numbers: int) -> list[bytes]:
    """Ten bytes each."""
    return [b"line %04d\n" % number for number in numbers]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def write(sink: AuditFile, *parts: list[bytes]) -> None:
    """Offer the parts one after the other, each when the one before is written, and wait for what was there."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.run)
        for part in parts:
            sink.offer(part)
            with trio.fail_after(10):
                await sink.written()
        with trio.fail_after(10):
            await sink.written()
        nursery.cancel_scope.cancel()


async def test_lines_are_appended(tmp_path: Path) -> None:
    """Also to a file that was there before."""
    path = tmp_path / "audit.jsonl"
    for number in range(3):
        await write(AuditFile(str(path), 10_000, 2, Received()), lines(number, number))
    assert path.read_bytes() == b"".join(lines(0, 0, 1, 1, 2, 2))


async def test_files_are_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    """FILE is the newest; no line is cut, and none is lost but those of files that are not kept."""
    path = tmp_path / "audit.jsonl"
    await write(AuditFile(str(path), 30, 2, Received()), *(lines(number) for number in range(8)), lines(8, 9, 10, 11))
    assert contents(tmp_path) == {
        "audit.jsonl": b"".join(lines(9, 10, 11)),
        "audit.jsonl.1": b"".join(lines(6, 7, 8)),
        "audit.jsonl.2": b"".join(lines(3, 4, 5)),
    }


async def test_a_line_larger_than_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await write(AuditFile(str(path), 5, 3, Received()), lines(1, 2))
    assert contents(tmp_path) == {"audit.jsonl": lines(2)[0], "audit.jsonl.1": lines(1)[0]}


async def test_a_disk_that_refuses_costs_events_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    """Dropped events are counted; later ones are written when there is space again."""
    monkeypatch.setattr(audit_file, "RETRY_S", 0.01)
    received, path = Received(), tmp_path / "folder" / "audit.jsonl"
    sink = AuditFile(str(path), 100, 1, received)
    await write(sink, lines(1, 2))
    assert (sink.dropped, received.events) == (2, ["audit-not-written"])
    path.parent.mkdir()
    await write(sink, lines(3))
    assert path.read_bytes() == lines(3)[0]


@pytest.mark.parametrize("left", [b"line 00", b"line 0000\n", b""])
async def test_a_line_that_was_cut_short_stays_a_separate_line(tmp_path: Path, left: bytes) -> None:
    """A proxy was killed within it; what the next one writes begins a new line."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(left)
    await write(AuditFile(str(path), 10_000, 2, Received()), lines(1), lines(2))
    assert path.read_bytes() == left + (b"\n" if left == b"line 00" else b"") + b"".join(lines(1, 2))


async def test_what_waits_is_bounded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(audit_file, "BUFFER_BYTES", 25)
    sink = AuditFile(str(tmp_path / "audit.jsonl"), 1000, 1, Received())
    sink.offer(lines(1, 2))
    sink.offer(lines(3))
    assert sink.dropped == 1
    await write(sink)
    sink.offer(lines(4))
    assert sink.dropped == 1
