"""A docstring says something, and what it sends the reader to is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support import sources

PROXY = Path(__file__).resolve().parents[2] / "proxy" / "kafka_share_proxy"
SOURCES = sorted(PROXY.rglob("*.py"))
WORD = re.compile(r"\w+\.?")
"""Names of settings have dots, and say enough."""
SEE = re.compile(r"\bSee `?((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)`?[.;,:]")
FOREIGN = ("trio.",)
"""Prefixes of names in libraries."""


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every string that is a statement."""
    yield from ((line, text.strip()) for line, text in sources.docstrings(source))


@cache
def names_of_modules() -> dict[str, set[str]]:
    """Module, by its last name -> every class, function and name that is set in modules of that name."""
    names_by_module: dict[str, set[str]] = {}
    for path in SOURCES:
        names = names_by_module.setdefault(path.stem, set())
        for node in sources.nodes(path.read_text()):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names_by_module


def is_there(reference: str) -> bool:
    """True if `room.module.Class`, `module.name`, `room.module`, `Class.method` or `Class` exists."""
    *before, last = reference.split(".")
    modules = names_of_modules()
    if last in modules:
        return True
    owner = before[-1:] or [last]
    places = [modules[owner[0]]] if owner[0] in modules else [names for names in modules.values() if owner[0] in names]
    return any(last in names for names in places)


def test_docstrings_have_more_than_a_word_and_refer_to_what_is_there() -> None:
    for path in SOURCES:
        for line, text in docstrings(path.read_text()):
            place = f"{path.relative_to(PROXY).as_posix()}:{line}"
            assert not WORD.fullmatch(text), f"{place}: {text!r} says too little"
            for reference in SEE.findall(text):
                assert reference.startswith(FOREIGN) or is_there(reference), f"{place}: {reference} is not there"


def test_a_reference_to_what_is_not_there_is_found() -> None:
    assert is_there("prefixes.PrefixReader")
    assert is_there("PrefixReader")
    assert not is_there("prefixes.Reader")
    assert not is_there("no_such_module.PrefixReader")
