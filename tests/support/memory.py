"""Memory of processes."""

from __future__ import annotations

import re
from pathlib import Path


def rss_mib(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if the system does not report it."""
    return _mib(pid, "VmRSS")


def own_mib(pid: int) -> float:
    """Resident memory without files, for growth: an idle proxy unmaps code, which is mapped again when it runs."""
    return _mib(pid, "RssAnon")


def _mib(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status")
    match = re.search(rf"{name}:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(match[1]) / 1024 if match else 0.0
