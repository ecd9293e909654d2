"""Audit events in a file of JSON lines, rotated by size: FILE is written, FILE.1 is the previous one, and so on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from os import SEEK_END
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import trio

from kafka_share_proxy.loop.interfaces import Notes

BUFFER_BYTES = 16 << 20
"""Maximum bytes of queued lines. Further lines are dropped."""
RETRY_S = 1.0
"""Seconds to wait after a failed write, whose lines are dropped."""
WRITTEN_POLL_S = 0.01
END_S = 2.0
"""Seconds that a write in progress may take when the process ends."""


class AuditFile:
    """Appender of lines in a separate thread, so that a slow disk does not block the event loop."""

    name = "file"

    def __init__(self, path: str, file_bytes: int, files_kept: int, notes: Notes) -> None:
        self._path = Path(path)
        self._file_bytes = file_bytes
        self._files_kept = files_kept
        self._notes = notes
        self._is_begun = False
        """True if the content of the file ends with a complete line."""
        self._waiting: SimpleQueue[Sequence[bytes] | None] = SimpleQueue()
        """Lines to write. None ends the thread."""
        self._queued_bytes = self._done_bytes = 0
        """Bytes put into `_waiting`, changed by the event loop only, and taken from it, changed by the thread only."""
        self._without_room = self._refused = 0

    @property
    def dropped(self) -> int:
        """Events for which the queue was full or the write failed."""
        return self._without_room + self._refused

    def offer(self, lines: Sequence[bytes]) -> None:
        """Queue these lines for writing."""
        size = sum(map(len, lines))
        if self._queued_bytes - self._done_bytes + size > BUFFER_BYTES:
            self._without_room += len(lines)
            return
        self._queued_bytes += size
        self._waiting.put(lines)

    async def run(self) -> None:
        """Write until cancelled."""
        thread = Thread(target=self._write_all, args=[trio.lowlevel.current_trio_token()], name="audit", daemon=True)
        thread.start()
        try:
            await trio.sleep_forever()
        finally:
            self._waiting.put(None)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(thread.join, END_S)

    async def written(self) -> None:
        """Wait until all queued lines are processed."""
        while self._done_bytes < self._queued_bytes:  # noqa: ASYNC110  # called once, when the process ends
            await trio.sleep(WRITTEN_POLL_S)

    def _write_all(self, loop: trio.lowlevel.TrioToken) -> None:
        """Write queued lines in the thread until the end."""
        while (lines := self._next()) is not None:
            try:
                self._write(lines)
            except OSError as error:
                self._refused += len(lines)
                self._is_begun = False
                self._report(loop, error)
                time.sleep(RETRY_S)
            self._done_bytes += sum(map(len, lines))

    def _next(self) -> Sequence[bytes] | None:
        """Return all queued lines, or None at the end."""
        queued = self._waiting.get()
        if queued is None:
            return None
        lines = list(queued)
        while not self._waiting.empty():
            more = self._waiting.get()
            if more is None:
                self._waiting.put(None)
                break
            lines += more
        return lines

    def _report(self, loop: trio.lowlevel.TrioToken, error: OSError) -> None:
        reason = error.strerror or str(error)
        with suppress(trio.RunFinishedError):
            loop.run_sync_soon(partial(self._notes, "audit-not-written", path=str(self._path), reason=reason))

    def _write(self, lines: Sequence[bytes]) -> None:
        """Append lines and rotate between them."""
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
        """See audit/README.md rule 5."""
        if self._is_begun:
            return
        with self._path.open("a+b") as file:
            if file.tell():
                file.seek(-1, SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
        self._is_begun = True

    def _rotate(self) -> None:
        paths = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, self._files_kept + 1))]
        paths[-1].unlink(missing_ok=True)
        for newer, older in zip(reversed(paths[:-1]), reversed(paths[1:]), strict=True):
            if newer.exists():
                newer.rename(older)
