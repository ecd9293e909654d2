"""Number of CPUs that this process may use: its affinity, and the quota of its container (cgroup v2)."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Quota and period in microseconds, or `max` for no quota. Source: the kernel's documentation of cgroup v2."""


def available_cpus(quota: Path = QUOTA) -> int:
    """Return the number of CPUs, at least 1. `quota`: file with the quota of the container."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        allowed, period = quota.read_text("ascii").split()
    except (OSError, ValueError):
        return cpus
    return cpus if allowed == "max" else max(1, min(cpus, ceil(int(allowed) / int(period))))
