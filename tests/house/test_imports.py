"""Who may import whom: arrows between rooms point down, and never sideways between rooms of one floor."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PROXY = CHECKOUT / "proxy"
SOURCES = sorted(PROXY.rglob("*.py"))

GROUND = {"proxy.values", "proxy.errors", "proxy.hashing"}
SHELL = {
    "proxy.auditing",
    "proxy.broker_flags",
    "proxy.check",
    "proxy.cli",
    "proxy.composition",
    "proxy.config",
    "proxy.consistency",
    "proxy.contexts",
    "proxy.decoding",
    "proxy.figures",
    "proxy.group_figures",
    "proxy.groups",
    "proxy.hostports",
    "proxy.listening",
    "proxy.observe",
    "proxy.readiness",
    "proxy.server",
    "proxy.sources",
    "proxy.state_rights",
    "proxy.view_migration",
    "proxy.view_rights",
    "proxy.viewing",
    "proxy.views_command",
}
MAY_USE: dict[str, set[str]] = {
    "proxy.values": set(),
    "proxy.errors": set(),
    "proxy.hashing": set(),
    "proxy.wire": GROUND,
    "proxy.link": GROUND | {"proxy.wire"},
    "proxy.cluster": GROUND | {"proxy.wire"},
    "proxy.share": GROUND,
    "proxy.views": GROUND,
    "proxy.apis": GROUND | {"proxy.wire", "proxy.link", "proxy.cluster", "proxy.share", "proxy.views"},
    "proxy.runtime": GROUND
    | {"proxy.wire", "proxy.link", "proxy.cluster", "proxy.share", "proxy.views", "proxy.apis", "proxy.observe"},
    "proxy.observe": GROUND,
    "proxy.sources": GROUND,
    "proxy.hostports": GROUND,
    # Settings of share groups are pure tables; everything else about settings knows no room.
    "proxy.consistency": GROUND | {"proxy.hostports", "proxy.sources", "proxy.config"},
    "proxy.config": GROUND | {"proxy.hostports", "proxy.sources", "proxy.consistency", "proxy.share"},
}
"""Room -> rooms it may import, besides itself; a room that is not named may import everything."""
EXCEPTIONS = {
    ("proxy.share.facts", "proxy.wire"): "the records of share state are encoded by the codec",
    ("proxy.views.filler", "proxy.wire"): "a filler is a record batch",
    ("proxy.views.legacy", "proxy.wire"): "old messages become record batches",
    ("proxy.views.slicing", "proxy.wire"): "it takes record batches apart and puts them together",
    ("proxy.views.twin", "proxy.wire"): "it takes record batches apart and puts them together",
}

NO_WAITING = {"trio", "structlog", "time", "random", "socket", "select", "os", "threading", "asyncio", "subprocess"}
"""What a machine has no use for: it is told what happened and when."""
BANNED: dict[str, set[str]] = {
    "proxy.values": NO_WAITING,
    "proxy.errors": NO_WAITING,
    "proxy.wire": NO_WAITING,
    "proxy.link": NO_WAITING,
    "proxy.cluster": NO_WAITING,
    "proxy.share": NO_WAITING,
    "proxy.hashing": NO_WAITING,
    "proxy.views": NO_WAITING,
    "proxy.apis": NO_WAITING,
    "proxy.runtime": {"asyncio", "structlog", "subprocess", "random"},
    "proxy.config": {"trio", "structlog", "socket"},
}
LAST = {"proxy.cli", "proxy.__main__"}
"""Nobody imports these."""


def module_of(path: Path) -> str:
    """proxy/share/group.py -> proxy.share.group"""
    parts = path.relative_to(CHECKOUT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """proxy.share.group -> proxy.share; proxy.config -> proxy.config"""
    return ".".join(module.split(".")[:2])


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, wherever in the file, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name, relative imports hide the room"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if _is_module(inner) else str(node.module), node.lineno


def _is_module(name: str) -> bool:
    path = CHECKOUT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def wrong_imports(path: Path) -> list[str]:
    """Sentences for every import that breaks a rule."""
    module, room = module_of(path), room_of(module_of(path))
    found = []
    for name, line in imports(path):
        where = f"{path.relative_to(CHECKOUT)}:{line}"
        top, target = name.split(".")[0], room_of(name)
        if top == "proxy":
            allowed = room not in MAY_USE or target in {*MAY_USE[room], room} or (module, target) in EXCEPTIONS
            if not allowed:
                found.append(f"{where}: {room} may not import {target}")
            if target in LAST and module != "proxy.__main__":
                found.append(f"{where}: nobody imports {target}")
            if target in SHELL and room not in MAY_USE and module not in SHELL | LAST:
                found.append(f"{where}: {target} belongs to the shell")
        elif top in BANNED.get(room, ()):
            found.append(f"{where}: {room} has no business with {top}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: module_of(path))
def test_arrows_point_down(path: Path) -> None:
    """A file imports only from its own room and those below it, and no I/O where machines live."""
    assert wrong_imports(path) == []


def test_the_rule_bites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that asks the time, waits, or looks into a neighbour's room is found."""
    monkeypatch.setattr(sys.modules[__name__], "CHECKOUT", tmp_path)
    wrong = tmp_path / "proxy" / "share" / "wrong.py"
    (tmp_path / "proxy" / "cluster").mkdir(parents=True)
    wrong.parent.mkdir()
    wrong.write_text(
        "import time\nfrom proxy import cluster\ndef late():\n    import trio\n    from proxy.cli import main\n"
    )
    assert [sentence.split(": ", 1)[1] for sentence in sorted(wrong_imports(wrong))] == [
        "proxy.share has no business with time",
        "proxy.share may not import proxy.cluster",
        "proxy.share has no business with trio",
        "nobody imports proxy.cli",
        "proxy.share may not import proxy.cli",
    ]


def test_packages_import_nothing() -> None:
    """A re-export in `__init__.py` would make every room load what the others need."""
    assert [path for path in PROXY.rglob("__init__.py") if path.read_text().strip()] == []


def test_every_room_has_its_rule() -> None:
    """A new folder is a new room, and says here whom it may import."""
    rooms = {room_of(module_of(path)) for path in SOURCES if len(path.relative_to(PROXY).parts) > 1}
    assert rooms <= set(MAY_USE)


def test_no_exception_outlives_its_reason() -> None:
    """An exception that nobody needs any more is taken out."""
    for module, target in EXCEPTIONS:
        path = CHECKOUT.joinpath(*module.split(".")).with_suffix(".py")
        assert target in {room_of(name) for name, _ in imports(path)}, f"{module} no longer imports {target}"
