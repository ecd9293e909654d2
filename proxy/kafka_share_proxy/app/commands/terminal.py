"""Safe output of text from the cluster, the admin listener or clients: terminals obey some control characters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.wire.key_text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["WIDTH_ELSEWHERE", "cell", "console", "number_ranges", "print_json", "printable", "printable_lines"]

WIDTH_ELSEWHERE = 400
"""Columns if the output is not a terminal: programs read it, and lines are not folded."""


def printable_lines(text: str) -> str:
    """Apply `printable` to each line. Line ends are kept."""
    return "\n".join(map(printable, text.split("\n")))


def cell(value: object) -> Text:
    """Return a table cell without markup or unprintable characters."""
    from rich.text import Text  # only commands with tables need it

    return Text(printable(str(value)))


def number_ranges(numbers: Iterable[int]) -> str:
    """Format as 3 or 0-7 or 0,2,5."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def print_json(console: Console, data: Any) -> None:
    """Print ASCII: JSON allows control characters above 127, and some terminals obey them."""
    console.print_json(json.dumps(data), ensure_ascii=True)


def console() -> Console:
    from rich.console import Console

    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=WIDTH_ELSEWHERE)
