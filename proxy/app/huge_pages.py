"""Memory of this process that stays, moved into huge pages.

A proxy sleeps between requests, and whoever runs meanwhile takes the processor's caches of page addresses: a request
then touches about a thousand pages of code and tables that must all be looked up again. In pages of 2 MiB it is a few
dozen. The kernel is asked once, for what is there after the start, and only where nearly all of it is in use, so that
the process does not grow.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
MADV_COLLAPSE = 25
"""Linux 6.1; older kernels refuse it, and everything stays as it is."""
HUGE_MAX = 4 << 20
"""Where huge pages are larger (arm64 with pages of 64 KiB: 512 MiB) there is nothing to fill one with."""
USED_MIN = 0.9
"""Of a mapping, for it to be moved."""
BLOCKS_MAX = 256
"""Moved at most: each is copied while nobody is served."""


def move() -> int:
    """Move what is there; the bytes that are in huge pages now. 0 where there are none, or where nobody wants them."""
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
    """Bytes of a huge page; 0 where they are not to be used."""
    if sys.platform != "linux":
        return 0
    try:
        size = int((HUGE_PAGES / "hpage_pmd_size").read_text())
        return 0 if "[never]" in (HUGE_PAGES / "enabled").read_text() or size > HUGE_MAX else size
    except (OSError, ValueError):
        return 0  # a kernel without huge pages, or a system that does not say


def _blocks(smaps: str, size: int) -> Iterator[int]:
    """Addresses of the aligned blocks in private memory that is in use."""
    begin = end = 0
    for line in smaps.splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            begin, end = _mapping(name, rest)
        elif name == "Rss:" and int(rest[0]) << 10 >= (end - begin) * USED_MIN:
            first = -(-begin // size) * size
            yield from range(first, end - size + 1, size)


def _mapping(addresses: str, rest: list[str]) -> tuple[int, int]:
    """Its addresses, (0, 0) where it is not private, writable memory without a file."""
    begin, end = (int(address, 16) for address in addresses.split("-"))
    is_ours = rest[0] == "rw-p" and rest[3] == "0" and (len(rest) == 4 or rest[4] == "[heap]")
    return (begin, end) if is_ours else (0, 0)
