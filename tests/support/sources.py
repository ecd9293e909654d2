"""Python sources, parsed once in a process: many tests of the house read the same files."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from typing import NamedTuple

STRINGS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
"""Kinds of tokens; from Python 3.12 on, f-strings have their own."""


class Words(NamedTuple):
    """Tokens of a source that consist of words, each with its line."""

    names: tuple[tuple[int, str], ...]
    comments: tuple[tuple[int, str], ...]
    strings: tuple[tuple[int, str], ...]


@cache
def parsed(source: str) -> ast.Module:
    """Return the tree of a source, which all callers share: it is not to be changed."""
    return ast.parse(source)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of the tree of a source, as `ast.walk` yields them."""
    return tuple(ast.walk(parsed(source)))


@cache
def docstrings(source: str) -> tuple[tuple[int, str], ...]:
    """Return (line, text) of every string that is a statement."""
    return tuple(
        (node.lineno, node.value.value)
        for node in nodes(source)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


@cache
def words(source: str) -> Words:
    """Return the names, with keywords, the comments and the strings of a source, as they are written."""
    names, comments, strings = [], [], []
    for kind, text, (line, _), _, _ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind == tokenize.NAME:
            names.append((line, text))
        elif kind == tokenize.COMMENT:
            comments.append((line, text))
        elif kind in STRINGS:
            strings.append((line, text))
    return Words(tuple(names), tuple(comments), tuple(strings))


def called(call: ast.Call) -> str:
    """Return the last name of what is called: `b` for `a.b()`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ast.unparse(call.func).split(".")[-1]
