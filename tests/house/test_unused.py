"""Every definition is used by the product: what only a test calls is deleted, or waived with a reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "proxy" / "kafka_share_proxy"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *(CHECKOUT / "deploy").rglob("*.py")])
OTHER_TEXT = "\n".join(
    path.read_text(encoding="utf-8")
    for path in (CHECKOUT / "pyproject.toml", *PACKAGE.rglob("*.c"), *PACKAGE.rglob("*.h"))
)

WAIVED: dict[str, str] = {
    "BrokerShareLimits": "read by the names of the broker's settings",
    "ClusterCalls": "methods of the public consumers",
    "FULL_SPEED": "Java options of the benches",
    "HANDSHAKE_KINDS": "the golden files of earlier versions are cut there",
    "KeyRanges.range_of": "the definition that the columns are compared with",
    "KafkaCluster": "methods for the tests of applications",
    "Node.suspend": "a broker that hangs, for the tests of dead brokers",
    "RECORD_BATCHES": "reference layout",
    "ShareCoordinator.rest_idle": "all of `rest_some` in one step, for the model's tests",
    "in_tagged_field": "the schemas are checked with it",
    "pytest_configure": "called by pytest",
}
"""Definitions without a caller in the product, or classes with such, each with its reason. The list may only shrink."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}


@cache
def _texts() -> list[str]:
    """Read when a test runs: each process of a whole run imports this file."""
    return [path.read_text(encoding="utf-8") for path in SOURCES]


@cache
def _classes() -> dict[str, ast.ClassDef]:
    return {node.name: node for text in _texts() for node in sources.nodes(text) if isinstance(node, ast.ClassDef)}


def _loaded(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        return node.id if isinstance(node, ast.Name) else node.attr
    return None


def _used() -> Counter[str]:
    """Every name that is loaded, imported or quoted, with the number of times."""
    uses: Counter[str] = Counter(re.findall(r"\w+", OTHER_TEXT))
    for text in _texts():
        prose = {node.value for node in sources.nodes(text) if isinstance(node, ast.Expr)}
        for node in sources.nodes(text):
            if (name := _loaded(node)) is not None:
                uses[name] += 1
            elif isinstance(node, ast.ImportFrom):
                uses.update(alias.name for alias in node.names)
            elif isinstance(node, ast.MatchClass):
                uses.update(node.kwd_attrs)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in prose:
                uses.update(re.findall(r"\w+", node.value))
    return uses


def _within(node: ast.AST, name: str) -> int:
    """Number of times that a definition names itself."""
    return sum(name == _loaded(each) for each in ast.walk(node))


def _is_of_a_library(node: ast.ClassDef) -> bool:
    """Its methods and values may be what a library calls, or the names of an enumeration."""
    known = {"NamedTuple", "Protocol", "Generic", "Exception", "ValueError", "Message", "object", "dict", "list"}
    return any(_is_of_a_library(_classes()[base]) if base in _classes() else base not in known for base in _bases(node))


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, Definition):
        return [] if node.decorator_list and not isinstance(node, ast.ClassDef) else [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _definitions(public: str) -> Iterator[tuple[str, str, ast.stmt]]:
    """The name to show, the name, and the statement of all that is defined by a module or class."""
    for text in _texts():
        for statement in sources.parsed(text).body:
            yield from ((name, name, statement) for name in _names_of(statement))
            if not isinstance(statement, ast.ClassDef) or _is_of_a_library(statement):
                continue
            if statement.decorator_list and "config" in ast.unparse(statement.decorator_list[0]):
                continue
            if re.search(rf"\b{statement.name}\b", public) is None:
                for each in statement.body:
                    yield from ((f"{statement.name}.{name}", name, each) for name in _names_of(each))


def test_every_definition_is_used() -> None:
    public = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    used = _used()
    unused = {
        shown.split(".")[0] if shown.split(".")[0] in WAIVED else shown
        for shown, name, node in _definitions(public)
        if not name.startswith("__") and used[name] <= _within(node, name)
    }
    assert unused == set(WAIVED)
