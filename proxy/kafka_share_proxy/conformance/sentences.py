"""Docstrings as the sentences of cases and rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def sentence_of(function: Callable[..., Any]) -> str:
    """Return the docstring on one line. Raises ValueError if there is none, as with `python -OO`."""
    if not function.__doc__:
        raise ValueError(f"{function.__qualname__} has no docstring, which is shown as its sentence")
    return " ".join(function.__doc__.split())
