"""Audit events in a file of JSON lines, rotated by size: FILE is written, FILE.1 is the one before it, and so on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from os import SEEK_END
from pathlib import Path

import trio

from proxy.loop.interfaces import Notes

BUFFER_BYTES = 16 << 20
"""Lines that wait for the disk; what comes beyond is dropped."""
RETRY_S = 1.0
"""After the disk refused; what was to be written is dropped then."""


class AuditFile:
    """Appends lines, in a thread of its own, so that a slow disk holds up nobody."""

    name = "file"

    def __init__(self, path: str, file_bytes: int, files_kept: int, notes: Notes) -> None:
        """`files_kept`: rotated files beside the one that is written."""
        self._path = Path(path)
        self._file_bytes = file_bytes
        self._files_kept = files_kept
        self._notes = notes
        self._is_begun = False
        """Whether what stands in the file ends with a whole line."""
        self._waiting: deque[Sequence[bytes]] = deque()
        self._bytes = 0
        self._came = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self.dropped = 0
        """Events that found no room, or that the disk refused."""

    def offer(self, lines: Sequence[bytes]) -> None:
        """Write these lines, some time soon."""
        size = sum(map(len, lines))
        if self._bytes + size > BUFFER_BYTES:
            self.dropped += len(lines)
            return
        self._waiting.append(lines)
        self._bytes += size
        self._idle = trio.Event() if self._idle.is_set() else self._idle
        self._came.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._came.wait()
            self._came = trio.Event()
            while self._waiting:
                lines = list(self._waiting)
                self._waiting.clear()
                self._bytes = 0
                await self._append([line for part in lines for line in part])
            self._idle.set()

    async def written(self) -> None:
        """Wait until nothing waits any more."""
        await self._idle.wait()

    async def _append(self, lines: Sequence[bytes]) -> None:
        try:
            await trio.to_thread.run_sync(self._write, lines)
        except OSError as error:
            self.dropped += len(lines)
            self._is_begun = False
            self._notes("audit-not-written", path=str(self._path), reason=error.strerror or str(error))
            await trio.sleep(RETRY_S)

    def _write(self, lines: Sequence[bytes]) -> None:
        """One file after the other; a line is never cut."""
        self._end_cut_line()
        position = 0
        while position < len(lines):
            if self._path.exists() and self._path.stat().st_size >= self._file_bytes:
                self._rotate()
            with self._path.open("ab") as file:
                size = file.tell()
                first = position
                while position < len(lines) and (size < self._file_bytes or position == first):
                    size += len(lines[position])
                    position += 1
                file.write(b"".join(lines[first:position]))

    def _end_cut_line(self) -> None:
        """A proxy that was killed, or a full disk, may have left part of a line: it stays a line of its own."""
        if self._is_begun:
            return
        with self._path.open("a+b") as file:
            if file.tell():
                file.seek(-1, SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
        self._is_begun = True

    def _rotate(self) -> None:
        kept = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._files_kept + 1))]
        kept[-1].unlink(missing_ok=True)
        for newer, older in zip(reversed(kept[:-1]), reversed(kept[1:]), strict=True):
            if newer.exists():
                newer.rename(older)
