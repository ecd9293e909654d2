"""Processes that a process has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return the process ids; none if the system does not list them or the process has ended."""
    pids: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # a thread that has ended meanwhile
                pids += map(int, (task / "children").read_text().split())
    return pids
