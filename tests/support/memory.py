"""Memory of processes."""

from __future__ import annotations

import re
from pathlib import Path


def rss_mib(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if the system does not report it."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else 0.0
