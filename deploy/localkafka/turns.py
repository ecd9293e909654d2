"""One process at a time, where several would do the same work twice."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """While entered, no other process is between `turn` of this folder and its end; waits for its turn.

    The folder is made if it is missing; beside it stands an empty file. A process that dies gives its turn up.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
