"""Hypothesis tries the numbers and texts that stand in the sources of the program, and keeps them in `.hypothesis`.

Each process of a run in a fresh checkout would read all sources for them at the same time. So each reads a part, and
has the others' from that folder. Hypothesis reads by itself what is missing there.
"""

from __future__ import annotations

import sys
import zlib


def keep(part: int, parts: int) -> None:
    """Keep the constants of a part of the modules that have been imported."""
    try:
        from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file
    except ImportError:
        return  # another Hypothesis, which has these functions elsewhere
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and zlib.crc32(file.encode()) % parts == part and is_local_module_file(file):
            constants_from_module(module)
