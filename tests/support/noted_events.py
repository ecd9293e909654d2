"""Log events that source files name."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import kafka_share_proxy

from tests.support import sources

PACKAGE = Path(kafka_share_proxy.__file__).parent


def events_of(path: Path) -> set[str]:
    """Literal events that a file notes, or ends a connection with."""
    events = set()
    for node in sources.nodes(path.read_text()):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            first = node.args[0].value
            if sources.called(node) in {"notes", "_notes", "end", "_log_change"} and isinstance(first, str):
                events.add(first)
    return events


def events_of_room(room: str) -> set[str]:
    """Literal events of all files of a room."""
    return _events(PACKAGE.joinpath(room).rglob("*.py"))


def events_of_all() -> set[str]:
    """Literal events of every file."""
    return _events(PACKAGE.rglob("*.py"))


def _events(paths: Iterable[Path]) -> set[str]:
    return set().union(*map(events_of, paths))
