"""Huge pages for the permanent memory of this process.

Other processes evict the processor's cached address translations. A request touches about a thousand pages, or a few
dozen of 2 MiB. Only mappings that are almost fully in use are moved, so that the process does not grow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafka_share_proxy.app.serving.mappings import Mapping, advise, mappings

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
    moved = 0
    for number, block in enumerate(_blocks(list(mappings()), size)):
        if number == BLOCKS_MAX:
            break
        moved += advise(block, size, MADV_COLLAPSE)
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


def _blocks(listed: Iterable[Mapping], size: int) -> Iterator[int]:
    for each in listed:
        if _is_ours(each) and each.resident >= (each.end - each.begin) * USED_MIN:
            first = -(-each.begin // size) * size
            yield from range(first, each.end - size + 1, size)


def _is_ours(mapping: Mapping) -> bool:
    """Return True for private, writable memory without a file."""
    return mapping.access == "rw-p" and not mapping.inode and mapping.path in ("", "[heap]")
