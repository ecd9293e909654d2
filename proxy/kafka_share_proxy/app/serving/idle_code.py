"""Pages of programs and libraries that this process does not use while it is idle.

The start runs code that is not needed later: the import of modules, the checks of settings, the set-up of TLS. Its
pages count as memory of the process until the system needs them. Those that are used again are mapped again from the
page cache, 64 KiB at a time.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from kafka_share_proxy.app.serving.mappings import Mapping, advise, mappings

MADV_DONTNEED = 4
"""Value on Linux."""


def unmap() -> int:
    """Return the bytes that were in memory; 0 on systems other than Linux."""
    if sys.platform != "linux":
        return 0
    unmapped = 0
    with suppress(OSError):  # a system without the list of mappings
        for each in mappings():
            if _is_as_in_file(each) and advise(each.begin, each.end - each.begin, MADV_DONTNEED):
                unmapped += each.resident
    return unmapped


def _is_as_in_file(mapping: Mapping) -> bool:
    """Return True if every page can be read again from the file, because none has changed or can change."""
    return bool(mapping.inode) and not mapping.changed and mapping.access in ("r--p", "r-xp")
