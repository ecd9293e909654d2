"""Start of `kafka-share-proxy`, with as little in memory as possible, because an idle proxy should be small."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

TIME_ZONES = "/usr/share/zoneinfo:/usr/lib/zoneinfo:/usr/share/lib/zoneinfo:/etc/zoneinfo"
"""Folders of time zones, as in Python's configure. Without them zoneinfo, which the library of settings loads, would
read all variables of Python's build (0.2 MiB).
"""


def main() -> None:
    """Run the command."""
    os.environ.setdefault("PYTHONTZPATH", TIME_ZONES)
    _load_typer()
    from kafka_share_proxy.app import cli

    cli.main()


def _load_typer() -> None:
    """Load the library of commands without difflib, which only mistakes on the command line need (0.25 MiB)."""
    if "typer" in sys.modules or "difflib" in sys.modules:
        return
    stand_in = ModuleType("difflib")
    stand_in.get_close_matches = _close_matches  # type: ignore[attr-defined]  # all that the library imports
    sys.modules["difflib"] = stand_in
    try:
        import typer  # noqa: F401 - for its modules
    finally:
        del sys.modules["difflib"]


def _close_matches(*arguments: Any, **options: Any) -> list[str]:
    """Load difflib, and call its function of this name."""
    from difflib import get_close_matches

    return get_close_matches(*arguments, **options)
