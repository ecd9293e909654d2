"""API keys and error codes have names: a number is turned into one in one place each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support import sources

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = CHECKOUT / "proxy" / "kafka_share_proxy"
SOURCES = [path for path in sorted(ROOMS.rglob("*.py")) if path.parent != ROOMS / "localkafka"]

TAKE_A_KEY = frozenset({"send_request", "decode_response", "request", "response", "response_frame", "Call", "header"})
"""Functions whose first argument is an API key, or the second after a connection."""


def calls(source: str) -> Iterator[ast.Call]:
    for node in sources.nodes(source):
        if isinstance(node, ast.Call):
            yield node


def is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def codes_made(source: str) -> list[int]:
    """Lines in which a number that is not written there is made an error code by calling the class."""
    return [
        call.lineno
        for call in calls(source)
        if sources.called(call) == "ErrorCode" and not all(is_number(argument) for argument in call.args)
    ]


def keys_written(source: str) -> list[int]:
    """Lines in which an API key is written as a number."""
    constants = [
        node.lineno
        for node in sources.nodes(source)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KEY" and is_number(node.value)
    ]
    return [call.lineno for call in calls(source) if any(map(is_number, keys_of(call)))] + constants


def keys_of(call: ast.Call) -> list[ast.expr]:
    """Return what a call names as API keys."""
    keys = [keyword.value for keyword in call.keywords if keyword.arg == "key"]
    behind_connection = isinstance(call.func, ast.Name) and call.func.id == "send_request"
    if sources.called(call) in TAKE_A_KEY:
        keys += call.args[1:2] if behind_connection else call.args[:1]
    return keys


def found_in_sources(find_lines: object) -> list[str]:
    assert callable(find_lines)
    return [f"{path.relative_to(CHECKOUT)}:{line}" for path in SOURCES for line in find_lines(path.read_text())]


def test_received_numbers_become_error_codes_by_of() -> None:
    """`ErrorCode(number)` raises if a newer broker returns an unlisted code."""
    assert found_in_sources(codes_made) == []


def test_api_keys_are_written_as_names() -> None:
    assert found_in_sources(keys_written) == []


def test_a_number_that_is_written_is_found() -> None:
    assert codes_made("a = ErrorCode(code)\nb = errors.ErrorCode(entry.error_code)\nc = ErrorCode(3)") == [1, 2]
    lines = "DeclaredApi(key=3)", "KEY = 3", "registry.request(3, version)", "send_request(connection, 3, VERSION)"
    assert sorted(keys_written("\n".join((*lines, "send_request(connection, KEY, 3)")))) == [1, 2, 3, 4]
