"""Settings, commands and `serve`.

An idle proxy should be small. The library of commands is loaded without difflib, which only mistakes on the command
line need (0.25 MiB). The folders of time zones are given, with the defaults of Python, because zoneinfo, which the
library of settings loads, would read all variables of Python's build for them (0.2 MiB).
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

TIME_ZONES = "/usr/share/zoneinfo:/usr/lib/zoneinfo:/usr/share/lib/zoneinfo:/etc/zoneinfo"
"""Default of --with-tzpath of Python's configure."""
os.environ.setdefault("PYTHONTZPATH", TIME_ZONES)


def _close_matches(*arguments: Any, **options: Any) -> list[str]:
    """See difflib.get_close_matches."""
    from difflib import get_close_matches

    return get_close_matches(*arguments, **options)


if "typer" not in sys.modules and "difflib" not in sys.modules:
    _stand_in = ModuleType("difflib")
    _stand_in.get_close_matches = _close_matches  # type: ignore[attr-defined]  # all that the library imports
    sys.modules["difflib"] = _stand_in
    try:
        import typer  # noqa: F401 - for its modules
    finally:
        del sys.modules["difflib"]
