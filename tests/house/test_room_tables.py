"""The table of files in the README.md of a room names every module of the room, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "proxy" / "kafka_share_proxy"
TABLE = re.compile(r"^\| [Ff]ile \|.*\n\|.*\n((?:\|.*\n)+)", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


def names_in_table(readme: str) -> list[str]:
    """Return the names in the first column of the table of files, empty without such a table."""
    return [
        name for rows in TABLE.findall(readme) for row in rows.splitlines() for name in NAME.findall(row.split("|")[1])
    ]


def is_named(file: str, name: str) -> bool:
    """Return True if a name refers to a file of the room.

    A name may omit the suffix and the inner room, be a pattern (`report_*`), or be a folder (`model/`).
    """
    if name.endswith("/"):
        return file.startswith(name)
    return any(fnmatch(path, pattern) for path in (file, file.partition(".")[0]) for pattern in (name, f"*/{name}"))


def not_in_table(files: Iterable[str], names: list[str]) -> list[str]:
    """Return the modules that the table omits. If all names are in one inner room, it describes only this one."""
    inner_rooms = {name.partition("/")[0] if "/" in name else "" for name in names}
    scope = f"{inner_rooms.pop()}/" if len(inner_rooms) == 1 and "" not in inner_rooms else ""
    modules = [file for file in files if file.startswith(scope) and file.endswith(".py")]
    return [module for module in modules if not any(is_named(module, name) for name in names)]


def stale_in_table(files: Iterable[str], names: list[str]) -> list[str]:
    """Return the names that refer to no file."""
    return [name for name in names if not any(is_named(file, name) for file in files)]


def files_of(room: str) -> list[str]:
    """Return the Python and C sources of a room as paths in it."""
    paths = [*(PACKAGE / room).rglob("*.py"), *(PACKAGE / room).rglob("*.c")]
    return sorted(path.relative_to(PACKAGE / room).as_posix() for path in paths if path.name != "__init__.py")


TABLES = {path.parent.name: names_in_table(path.read_text()) for path in sorted(PACKAGE.rglob("README.md"))}


@pytest.mark.parametrize("room", [room for room, names in TABLES.items() if names])
def test_a_table_of_files_names_every_module_of_its_room_and_nothing_else(room: str) -> None:
    files = files_of(room)
    assert not_in_table(files, TABLES[room]) == []
    assert stale_in_table(files, TABLES[room]) == []


def test_a_missing_and_a_stale_name_are_reported() -> None:
    readme = "| File | What it does |\n|---|---|\n| `journal`, `model/` | appends |\n| `removed.py` | nothing |\n\n"
    files, names = ["_journal.c", "journal.py", "model/group.py", "tail.py"], names_in_table(readme)
    assert not_in_table(files, names) == ["tail.py"]
    assert stale_in_table(files, names) == ["removed.py"]
