"""Capture of the output of Spark's JVM, which is 25 lines of warnings before the first line of a job."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

NOTE = b"kafka-share-proxy: "
"""Prefix of the notes of tasks, which users shall see."""
LINES_KEPT = 200
"""Number of last lines kept for an error message if the JVM does not start."""
ENDED_S = 2.0
STREAMS = (1, 2)
"""Descriptors of stdout and stderr: a JVM that cannot start writes the reason to stdout."""


class HeldOutput:
    """Captured output of the processes that are started in a block."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._thread: threading.Thread | None = None

    @contextmanager
    def of_started_processes(self) -> Iterator[None]:
        """Capture the output of processes that are started in this block. Notes of tasks are forwarded to stderr."""
        sys.stdout.flush()
        sys.stderr.flush()
        descriptors = [os.dup(each) for each in STREAMS]
        reading, writing = os.pipe()
        for each in STREAMS:
            os.dup2(writing, each)
        os.close(writing)
        arguments = (reading, os.dup(descriptors[-1]))
        self._thread = threading.Thread(target=self._follow, args=arguments, name="JVM output", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            for each, original in zip(STREAMS, descriptors, strict=True):
                os.dup2(original, each)
                os.close(original)

    def cause(self) -> str | None:
        """Return the lines with the reason why a process did not start, if there are any."""
        if self._thread is not None:
            self._thread.join(ENDED_S)
        lines = list(self._lines)
        matching = [number for number, line in enumerate(lines) if "Error" in line or "Exception" in line]
        return ": ".join(lines[matching[0] : matching[0] + 2]) if matching else None

    def _follow(self, reading: int, stderr: int) -> None:
        with os.fdopen(reading, "rb") as file, os.fdopen(stderr, "wb", buffering=0) as forwarded:
            for line in file:
                if line.startswith(NOTE):
                    forwarded.write(line)
                else:
                    self._lines.append(line.decode(errors="replace").rstrip())
