"""Comparisons of what was expected with what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_share_proxy.wire.errors import ErrorCode

_NAMES = {int(code): code.name for code in ErrorCode}


class Mismatch(Exception):
    """The peer did something else than expected."""

    def __init__(self, quantity: str, expected: str, actual: str) -> None:
        super().__init__(f"{quantity}: expected {expected}, seen {actual}")
        self.quantity, self.expected, self.actual = quantity, expected, actual


class NotOffered(Exception):
    """The peer does not offer what the case needs. The text is the reason."""


def equal(quantity: str, actual: Any, expected: Any) -> None:
    """Raise Mismatch unless both are equal. Error codes are shown with their names."""
    if actual != expected:
        raise Mismatch(quantity, _shown(expected), _code(actual) if _has_code(expected) else _shown(actual))


def one_of(quantity: str, actual: Any, expected: Sequence[Any]) -> None:
    """Raise Mismatch unless the value is one of those expected."""
    if actual not in expected:
        shown = _code(actual) if _has_code(expected[0]) else _shown(actual)
        raise Mismatch(quantity, "one of " + ", ".join(map(_shown, expected)), shown)


def true(quantity: str, condition: object, expected: str, actual: Any = None) -> None:
    """Raise Mismatch unless the condition holds. `expected` says in words what it requires."""
    if not condition:
        raise Mismatch(quantity, expected, "something else" if actual is None else _shown(actual))


def _has_code(expected: Any) -> bool:
    return isinstance(expected, ErrorCode)


def _shown(value: Any) -> str:
    return _code(value) if isinstance(value, ErrorCode) else repr(value)


def _code(value: Any) -> str:
    return f"{int(value)} ({_NAMES[value]})" if value in _NAMES else repr(value)
