"""Sizes, names, and what every source file must have."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = "proxy/kafka_share_proxy"
SOURCES = sorted((CHECKOUT / "proxy").rglob("*.py"))
TESTS = sorted((CHECKOUT / "tests").rglob("test_*.py"))

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
LONG_FILES: dict[str, str] = {}
"""Files above the limit, each with its reason. The list may only shrink."""

NO_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}
"""Names that say nothing about what is inside."""

WITHOUT_TEST: dict[str, str] = {
    f"{ROOMS}/__main__.py": "three lines; run by tests/app/test_cli.py",
    f"{ROOMS}/brokers/interfaces.py": "shapes only",
    f"{ROOMS}/conformance/judge/events.py": "shapes only",
    f"{ROOMS}/conformance/target/interfaces.py": "shapes only",
    f"{ROOMS}/forwarding/served/interfaces.py": "a shape only",
    f"{ROOMS}/loop/callback_owners.py": "a shape only",
    f"{ROOMS}/loop/interfaces.py": "shapes only",
    f"{ROOMS}/loop/python_promise.py": "tests/loop/test_promise.py runs with it and with the extension",
    f"{ROOMS}/wire/values.py": "names and defaults",
}
"""Sources without a test file of their own, each with its reason."""

BROAD_CATCHES: dict[str, str] = {
    f"{ROOMS}/app/commands/pipeline_command.py": "any error of Spark ends a job with one line; see --verbose",
    f"{ROOMS}/client/deserializers.py": "errors of a deserializer are raised in turn, after the records before",
    f"{ROOMS}/client/interceptors.py": "an interceptor of the application must not end what it observes, as in Java",
    f"{ROOMS}/conformance/cluster_thread.py": "the thread that starts the cluster raises it",
    f"{ROOMS}/conformance/target/connection.py": "an error of a handler ends its connection, and fails the run later",
    f"{ROOMS}/fleet/edge.py": "a fault about one client is the failure of what that client asked, and not of the link",
    f"{ROOMS}/loop/faults.py": "the one place that catches broadly",
    f"{ROOMS}/loop/reactor.py": "the loop runs on until Trio has ended, whatever its own code raised",
    f"{ROOMS}/loop/python_promise.py": "what a handler raises is the result of its task",
}
"""Places where all exceptions may be caught and kept, each with its reason."""

# In pieces, so that this file does not hold what it looks for.
FORBIDDEN_TEXT = re.compile(
    "|".join(
        re.escape("".join(pieces))
        for pieces in (
            ("/ro", "ot/"),
            ("/home", "/"),
            ("py", "pi.org"),
            ("python", "hosted"),
            ("registry.", "npmjs"),
            ("proxy.", "golang"),
            ("maven", ".org"),
            ("maven.", "apache"),
        )
    )
)
"""Paths of one machine, host names of package registries."""


def name_of(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in sources.nodes(path.read_text()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    body = function.body
    has_docstring = ast.get_docstring(function, clean=False) is not None
    docstring = (body[0].end_lineno or 0) - body[0].lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_functions_fit_a_screen() -> None:
    """Usually 20 lines, never more than 60."""
    long = [
        f"{name_of(path)}:{function.lineno} {function.name}: {lines_of(function)} lines"
        for path in SOURCES
        for function in functions(path)
        if lines_of(function) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_files_have_one_subject() -> None:
    """Usually 200 lines, never more than 500; what is longer has a reason, and the list of reasons only shrinks."""
    long = {name_of(path) for path in SOURCES if len(path.read_text().splitlines()) > FILE_LINES_MAX}
    assert long == set(LONG_FILES)


def test_names_describe_their_content() -> None:
    """No drawer for everything."""
    assert [name_of(path) for path in (*SOURCES, *TESTS) if path.stem.removeprefix("test_") in NO_NAMES] == []


def _tests_for(path: Path) -> set[Path]:
    """tests/sharegroups/model/test_group.py for proxy/kafka_share_proxy/sharegroups/model/group.py."""
    room = path.relative_to(CHECKOUT / "proxy" / "kafka_share_proxy").parent
    folder = CHECKOUT / "tests" / (room if room.name else "public")
    return {file for file in folder.glob("test_*.py") if file.stem == f"test_{path.stem.lstrip('_')}"}


def test_every_source_has_its_test_file() -> None:
    """A source without one is named with its reason, and no reason outlives its file."""
    tested = [path for path in SOURCES if path.name != "__init__.py" and path.parent.name != "localkafka"]
    missing = {name_of(path) for path in tested if not _tests_for(path)}
    assert missing - set(WITHOUT_TEST) == set()
    assert set(WITHOUT_TEST) - missing == set()


def test_every_test_checks_something() -> None:
    """A test that has neither an assertion nor an expected exception cannot fail."""
    empty = [
        f"{name_of(path)}:{function.lineno} {function.name}"
        for path in TESTS
        for function in functions(path)
        if function.name.startswith("test_") and not _checks(function)
    ]
    assert empty == []


DEPTH = 3
"""A test may check through helpers of helpers."""


@cache
def _names_that_check() -> frozenset[str]:
    """Functions under tests/ that assert, raise, expect an exception, or call one that does."""
    all_functions = [function for path in sorted((CHECKOUT / "tests").rglob("*.py")) for function in functions(path)]
    names = {function.name for function in all_functions if any(_fails(node) for node in ast.walk(function))}
    for _ in range(DEPTH):
        names |= {f.name for f in all_functions if not f.name.startswith("test_") and _calls(f) & names}
    return frozenset(names)


def _calls(function: ast.AST) -> set[str]:
    return {sources.called(node) for node in ast.walk(function) if isinstance(node, ast.Call)}


def _checks(function: ast.AST) -> bool:
    """It fails by itself, or calls something that does."""
    return any(_fails(node) for node in ast.walk(function)) or bool(_calls(function) & _names_that_check())


def _fails(node: ast.AST) -> bool:
    """True for an assertion, `raise`, `pytest.raises` and `pytest.fail`."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Assert | ast.Raise)
    name = node.func
    of_pytest = isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name) and name.value.id == "pytest"
    return of_pytest and name.attr.startswith(("raises", "fail"))


def test_no_loop_of_the_tests_is_endless() -> None:
    """`while True` in a test hangs the run when it fails; a deadline or a count ends it."""
    endless = [
        f"{name_of(path)}:{node.lineno}"
        for path in TESTS
        for node in sources.nodes(path.read_text())
        if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value
    ]
    assert endless == []


def test_everything_is_caught_in_named_places_only() -> None:
    """`except Exception` hides bugs, unless it raises on."""
    broad_catches = {
        name_of(path)
        for path in SOURCES
        for node in sources.nodes(path.read_text())
        if isinstance(node, ast.ExceptHandler) and _is_broad(node) and not _raises_on(node)
    }
    assert broad_catches - set(BROAD_CATCHES) == set()
    assert set(BROAD_CATCHES) - broad_catches == set()


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = "" if handler.type is None else ast.unparse(handler.type)
    return handler.type is None or bool(re.search(r"\b(Base)?Exception\b", kinds))


def _raises_on(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in handler.body)


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=False, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [CHECKOUT / name for name in listed.stdout.split("\0") if name]


def test_no_file_names_a_machine() -> None:
    """No absolute path of a machine, no host name of a package registry."""
    lines = []
    for path in _tracked():
        if not path.is_file() or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_bytes().decode("utf-8", "replace").splitlines(), 1):
            if FORBIDDEN_TEXT.search(line):
                lines.append(f"{name_of(path)}:{number}: {line.strip()[:100]}")
    assert lines == []


def test_no_compiled_or_large_file_is_kept() -> None:
    """The repository holds text and small pictures; jars and recordings are fetched."""
    assert [name_of(path) for path in _tracked() if path.is_file() and path.stat().st_size > 1 << 20] == []
    assert [name_of(path) for path in _tracked() if path.suffix in {".pyc", ".jar", ".class", ".so"}] == []
