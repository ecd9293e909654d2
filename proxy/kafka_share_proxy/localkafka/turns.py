"""Mutual exclusion between processes that would otherwise do the same work twice."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Wait for and hold this folder's exclusive lock between processes, for the duration of the context.

    The folder is created if it is missing. The lock is an empty file next to it. A process that dies releases the
    lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
