"""Docstrings as sentences."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.sentences import sentence_of


def in_two_lines() -> None:
    """First line
    and second line.
    """


def without() -> None:
    pass


def test_a_docstring_is_put_on_one_line() -> None:
    assert sentence_of(in_two_lines) == "First line and second line."


def test_a_function_without_docstring_is_refused() -> None:
    with pytest.raises(ValueError, match="without has no docstring"):
        sentence_of(without)
