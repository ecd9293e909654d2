"""Huge pages for the permanent memory of this process.

Other processes evict the processor's cached address translations. A request touches about a thousand pages, or a few
dozen of 2 MiB. Only mappings that are almost fully in use are moved, so that the process does not grow.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
MADV_COLLAPSE = 25
"""Since Linux 6.1. Older kernels refuse it, and nothing changes."""
HUGE_MAX = 4 << 20
"""Maximum size of a huge page. No mapping fills larger ones (arm64 with pages of 64 KiB: 512 MiB)."""
USED_MIN = 0.9
"""Minimum fraction of a mapping in use for it to be moved."""
BLOCKS_MAX = 256
"""Maximum number of blocks moved. No client is served while each is copied."""


def move() -> int:
    """Return the bytes moved; 0 if huge pages are unavailable or disabled."""
    size = _huge_page_size()
    if not size:
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    moved = 0
    for number, block in enumerate(_blocks(Path("/proc/self/smaps").read_text(), size)):
        if number == BLOCKS_MAX:
            break
        moved += not advise(block, size, MADV_COLLAPSE)
    return moved * size


def _huge_page_size() -> int:
    """Return 0 if huge pages are not to be used."""
    if sys.platform != "linux":
        return 0
    try:
        size = int((HUGE_PAGES / "hpage_pmd_size").read_text())
        return 0 if "[never]" in (HUGE_PAGES / "enabled").read_text() or size > HUGE_MAX else size
    except (OSError, ValueError):
        return 0  # a kernel without huge pages, or without this information


def _blocks(smaps: str, size: int) -> Iterator[int]:
    begin = end = 0
    for line in smaps.splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            begin, end = _mapping(name, rest)
        elif name == "Rss:" and int(rest[0]) << 10 >= (end - begin) * USED_MIN:
            first = -(-begin // size) * size
            yield from range(first, end - size + 1, size)


def _mapping(addresses: str, rest: list[str]) -> tuple[int, int]:
    """Return (0, 0) unless the mapping is private, writable memory without a file."""
    begin, end = (int(address, 16) for address in addresses.split("-"))
    is_ours = rest[0] == "rw-p" and rest[3] == "0" and (len(rest) == 4 or rest[4] == "[heap]")
    return (begin, end) if is_ours else (0, 0)
