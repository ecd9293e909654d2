"""Import rules: arrows between rooms point down, features never import each other, and there is no circle."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE_ROOT = CHECKOUT / "proxy"
NAME = "kafka_share_proxy"
PACKAGE = SOURCE_ROOT / NAME
SOURCES = sorted(PACKAGE.rglob("*.py"))

GROUND = ("offsets", "wire")
"""They import nothing of the proxy, not even each other."""
FLOORS = (*GROUND, "loop", "audit", "brokers", "forwarding", "reading", "fleet", "durable", "feature")
"""Each may import those before it."""
FEATURES = ("sharegroups", "views", "commits", "consumer")
"""Each may import every floor, and no other feature."""
PURE = ("model", "kernel")
"""Rooms inside a feature that decide or compute: they import the ground, each other, and nothing else."""
CLIENTS = {"client": {"offsets", "wire", "loop", "brokers", "consumer"}}
"""Rooms that work without a proxy, and the rooms they may import: nothing that serves clients of others."""
PIPELINE = {"pipeline": {"offsets", "wire", "views", "consumer", "localkafka"}}
"""The room that Spark's jobs run, and the rooms it may import; of features only what decides."""
CONFORMANCE = {"conformance": {"offsets", "wire", "sharegroups", "views", "commits", "consumer"}}
"""The room that tests clusters and clients, and the rooms it may import; of features only what decides."""
TOOLS = {"localkafka": {"wire"}}
"""Rooms for tests and demos, and the rooms they may import."""
FACADE = {"public": {"offsets", "wire", "client", "consumer", "pipeline"}}
"""The names that users import, and the rooms that define them; no room imports them."""
FACADE_MODULES = (NAME, f"{NAME}.recipes", f"{NAME}.share_recipes")
"""The package itself and the example programs in it."""
STANDARD_LIBRARY_ONLY = ("offsets", "public")
"""Rooms that users' programs import: they use only the standard library."""

PURE_FEATURES = ("consumer",)
"""Features of which every module decides."""

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("kafka_share_proxy.app.commands.demo_traffic", "client"): "its share group members are programs of an application",
}
"""(module, room) that goes against the arrows, with the reason. The list may only shrink."""

WITHOUT_FEATURES = tuple(f"kafka_share_proxy.app.{room}." for room in ("serving", "observing", "settings"))
"""Modules of `app` that know features only by their interface (`feature/`)."""
FEATURE_LISTS = ("kafka_share_proxy.app.serving.features", "kafka_share_proxy.app.settings.config")
"""The modules that list the features, and the sections of their settings."""

NO_WAITING = {"trio", "structlog", "time", "random", "socket", "select", "os", "threading", "asyncio", "subprocess"}
"""Modules without use in code that never waits: such code is given events and times."""
LOOP_MODULES = {"asyncio", "structlog", "subprocess", "random"}
"""Modules without use in rooms that wait."""
NO_WAITING_IN = ("offsets", "public", "wire", "sharegroups", "views", "commits", "consumer", "reading")
"""Rooms whose modules wait for promises only; those that are named in MAY_WAIT use Trio."""
MAY_WAIT: dict[str, str] = {
    "kafka_share_proxy.commits.followed_groups": "a task that follows the topic of ranges",
    "kafka_share_proxy.commits.held_state": "lets others run between the ranges that it loads",
    "kafka_share_proxy.sharegroups.admin_pages": "serves the admin listener, from tasks of its own",
    "kafka_share_proxy.sharegroups.state.held_state": "lets others run between the groups that it forgets",
    "kafka_share_proxy.views.base_watch": "a task that looks at bases again and again",
    "kafka_share_proxy.views.state_topic": "stamps records with the wall clock",
    "kafka_share_proxy.views.stored_state": "a task that follows the topic of views",
}
"""Modules in such rooms that use Trio, with the reason."""


def module_of(path: Path) -> str:
    """proxy/kafka_share_proxy/sharegroups/model/group.py -> kafka_share_proxy.sharegroups.model.group"""
    parts = path.relative_to(SOURCE_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """kafka_share_proxy.sharegroups.model.group -> sharegroups"""
    return "public" if module in FACADE_MODULES else [*module.split("."), ""][1]


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, wherever in the file, with the line."""
    for node in sources.nodes(path.read_text()):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write the whole name, relative imports hide the room"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if _is_module(inner) else str(node.module), node.lineno


def _is_module(name: str) -> bool:
    path = SOURCE_ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def rooms_below(room: str) -> set[str]:
    """Rooms whose modules this room's may import, besides its own."""
    if room in GROUND:
        return set()
    special = FACADE | CLIENTS | PIPELINE | CONFORMANCE | TOOLS
    if room in special:
        return special[room]
    if room in FLOORS:
        return set(FLOORS[: FLOORS.index(room)])
    return set(FLOORS) if room in FEATURES else {*FLOORS, *FEATURES, *PIPELINE, *CONFORMANCE, *TOOLS}


def wrong_imports(path: Path) -> list[str]:
    """Sentences for every import that breaks a rule."""
    module = module_of(path)
    room = room_of(module)
    wrong = []
    for name, line in imports(path):
        where = f"{path.relative_to(SOURCE_ROOT)}:{line}"
        if name.split(".")[0] == NAME:
            wrong += [f"{where}: {trouble}" for trouble in _wrong_room(module, room, name)]
        elif name.split(".")[0] in _banned(module, room) or _foreign(name, room):
            wrong.append(f"{where}: {module} has no business with {name.split('.')[0]}")
    return wrong


def _wrong_room(module: str, room: str, name: str) -> Iterator[str]:
    target = room_of(name)
    if module == f"{NAME}.__main__" or (module, target) in EXCEPTIONS:
        return
    if target not in {room, *rooms_below(room)}:
        yield f"{room} may not import {target}"
    elif _is_pure(module) and not (target in GROUND or (target == room and _is_pure(name))):
        yield f"{module} decides, and may not import {name}"
    elif room in PIPELINE | CONFORMANCE and target in FEATURES and not _is_pure(name):
        yield f"{room} may import what decides, not {name}"
    elif module.startswith(WITHOUT_FEATURES) and module not in FEATURE_LISTS and target in FEATURES:
        yield f"only {' and '.join(FEATURE_LISTS)} may name the features, not {module}"
    elif name == f"{NAME}.app.cli" and module != f"{NAME}.app.command_line":
        yield f"only {NAME}.app.command_line starts {NAME}.app.cli"


def _is_pure(module: str) -> bool:
    parts = module.split(".")
    if len(parts) > 2 and parts[1] in PURE_FEATURES:
        return True
    return len(parts) > 2 and parts[1] in FEATURES and parts[2] in PURE


def _banned(module: str, room: str) -> set[str]:
    if room in ("app", *TOOLS) or module == f"{NAME}.__main__":
        return {"asyncio"}
    if room in NO_WAITING_IN and module not in MAY_WAIT:
        return NO_WAITING
    return LOOP_MODULES


def _foreign(name: str, room: str) -> bool:
    return room in STANDARD_LIBRARY_ONLY and name.split(".")[0] not in sys.stdlib_module_names


def test_arrows_point_down() -> None:
    """A file imports only from its own room and those below it, and nothing that waits where nothing may wait."""
    assert [wrong for path in SOURCES for wrong in wrong_imports(path)] == []


def test_the_rule_bites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that reads the time, waits, or imports another feature is found."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    wrong = tmp_path / NAME / "sharegroups" / "model" / "wrong.py"
    for room in ("views", "loop", "sharegroups/model"):
        (tmp_path / NAME / room).mkdir(parents=True)
    wrong.write_text(
        "import time\nfrom kafka_share_proxy import views\nfrom kafka_share_proxy import loop\n"
        "def late():\n    import trio\n"
        "    from kafka_share_proxy.app.cli import main\n"
    )
    assert [sentence.split(": ", 1)[1] for sentence in sorted(wrong_imports(wrong))] == [
        "kafka_share_proxy.sharegroups.model.wrong has no business with time",
        "sharegroups may not import views",
        "kafka_share_proxy.sharegroups.model.wrong decides, and may not import kafka_share_proxy.loop",
        "kafka_share_proxy.sharegroups.model.wrong has no business with trio",
        "sharegroups may not import app",
    ]


def test_features_are_named_only_where_they_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else of `serve` does the same for each of them."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    (tmp_path / NAME / "views").mkdir(parents=True)
    (tmp_path / NAME / "app" / "serving").mkdir(parents=True)
    for module, wrong in (("wrong", 1), ("features", 0)):
        path = tmp_path / NAME / "app" / "serving" / f"{module}.py"
        path.write_text("from kafka_share_proxy import views\n")
        assert len(wrong_imports(path)) == wrong


def test_the_ground_rests_on_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two lowest rooms do not know each other, and what users import brings no library along."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    wrong = tmp_path / NAME / "offsets" / "wrong.py"
    wrong.parent.mkdir(parents=True)
    wrong.write_text("import pydantic\nimport time\nfrom kafka_share_proxy.wire.codec import frames\nimport bisect\n")
    assert [sentence.split(": ", 1)[1] for sentence in wrong_imports(wrong)] == [
        "kafka_share_proxy.offsets.wrong has no business with pydantic",
        "kafka_share_proxy.offsets.wrong has no business with time",
        "offsets may not import wire",
    ]


def test_a_room_that_only_decides_imports_the_wire_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    wrong = tmp_path / NAME / "consumer" / "wrong.py"
    for room in ("consumer", "loop", "wire", "forwarding", "views"):
        (tmp_path / NAME / room).mkdir(parents=True)
    wrong.write_text("import trio\nfrom kafka_share_proxy import wire, loop, forwarding, views\n")
    assert sorted(sentence.split(": ", 1)[1] for sentence in wrong_imports(wrong)) == [
        "consumer may not import views",
        "kafka_share_proxy.consumer.wrong decides, and may not import kafka_share_proxy.forwarding",
        "kafka_share_proxy.consumer.wrong decides, and may not import kafka_share_proxy.loop",
        "kafka_share_proxy.consumer.wrong has no business with trio",
    ]


def test_a_client_knows_nothing_of_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that uses only the client loads nothing that forwards, serves or stores."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    wrong = tmp_path / NAME / "client" / "wrong.py"
    for room in ("client", "forwarding", "brokers", "views"):
        (tmp_path / NAME / room).mkdir(parents=True)
    wrong.write_text("import trio\nfrom kafka_share_proxy import brokers, forwarding, views\n")
    assert [sentence.split(": ", 1)[1] for sentence in wrong_imports(wrong)] == [
        "client may not import forwarding",
        "client may not import views",
    ]


def test_the_pipeline_takes_only_what_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors load no loop and no server."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    wrong = tmp_path / NAME / "pipeline" / "wrong.py"
    for room in ("pipeline", "brokers", "views/model", "views/fetch"):
        (tmp_path / NAME / room).mkdir(parents=True)
    wrong.write_text("from kafka_share_proxy import brokers\nfrom kafka_share_proxy.views import fetch, model\n")
    assert [sentence.split(": ", 1)[1] for sentence in wrong_imports(wrong)] == [
        "pipeline may not import brokers",
        "pipeline may import what decides, not kafka_share_proxy.views.fetch",
    ]


def test_packages_import_nothing() -> None:
    """A re-export in `__init__.py` would make every room load what the others need; the facade is nothing else."""
    assert [path for path in PACKAGE.rglob("__init__.py") if path.read_text().strip()] == [PACKAGE / "__init__.py"]


def test_every_room_has_its_place() -> None:
    """A new folder is a new room, and is listed here with its floor."""
    rooms = {room_of(module_of(path)) for path in SOURCES if path != PACKAGE / "__main__.py"}
    assert rooms == {*FLOORS, *FEATURES, *CLIENTS, *PIPELINE, *CONFORMANCE, *TOOLS, *FACADE, "app"}


def test_no_exception_outlives_its_reason() -> None:
    """An exception without a need is removed."""
    for module, target in EXCEPTIONS:
        assert target in {room_of(name) for name, _ in imports(_file(module))}, f"{module} no longer imports {target}"
    for module in MAY_WAIT:
        assert NO_WAITING & {name.split(".")[0] for name, _ in imports(_file(module))}, f"{module} does not wait"


def _file(module: str) -> Path:
    return SOURCE_ROOT.joinpath(*module.split(".")).with_suffix(".py")


CIRCLES: tuple[frozenset[str], ...] = ()
"""Modules that import each other. The list may only shrink."""


def circles(arrows: dict[str, set[str]]) -> list[frozenset[str]]:
    """Sets of modules of which each leads to all others (Tarjan)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    cycles = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for target in sorted(arrows.get(module, ())):
            if target not in order:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in path:
                lowest[module] = min(lowest[module], order[target])
        if lowest[module] == order[module]:
            start = path.index(module)
            circle = frozenset(path[start:])
            del path[start:]
            if len(circle) > 1:
                cycles.append(circle)

    for module in sorted(arrows):
        if module not in order:
            visit(module)
    return cycles


def arrows_of(path: Path) -> set[str]:
    """Modules that a file imports, without the types of its own room: parts of one object may name each other."""
    module, type_lines = module_of(path), type_only_lines(path)
    return {name for name, line in imports(path) if not (line in type_lines and room_of(name) == room_of(module))} - {
        module
    }


def type_only_lines(path: Path) -> set[int]:
    """Lines under `if TYPE_CHECKING:`, without those of its `else`."""
    return {
        line
        for node in sources.nodes(path.read_text())
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for line in range(node.lineno, node.body[-1].end_lineno + 1)
    }


def test_nothing_is_imported_in_a_circle() -> None:
    """Of two modules in different rooms that need each other, one imports an interface, for types as well."""
    assert set(circles({module_of(path): arrows_of(path) for path in SOURCES})) == set(CIRCLES)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [frozenset({"b", "c"})]


def test_types_of_the_own_room_make_no_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that runs counts, in the own room too, and an import of another room's types counts."""
    monkeypatch.setattr(sys.modules[__name__], "SOURCE_ROOT", tmp_path)
    part = tmp_path / NAME / "forwarding" / "part.py"
    for module in ("forwarding/whole", "forwarding/other", "forwarding/fallback", "brokers/port"):
        file = tmp_path / NAME / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    part.write_text(
        "from typing import TYPE_CHECKING\nfrom kafka_share_proxy.forwarding import other\nif TYPE_CHECKING:\n"
        "    from kafka_share_proxy.brokers import port\n    from kafka_share_proxy.forwarding import whole\n"
        "else:\n    from kafka_share_proxy.forwarding import fallback\n"
    )
    arrows = {name.removeprefix(f"{NAME}.") for name in arrows_of(part) if name.startswith(NAME)}
    assert arrows == {"forwarding.other", "forwarding.fallback", "brokers.port"}
