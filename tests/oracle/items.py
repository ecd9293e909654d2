"""The list of numbered items: what must be true of every world that serves share groups.

An item is a script over one `World`. Its number is that of the conformance list of the share-group semantics
(KIP-932, KIP-1222, measured on Kafka 4.3.0).
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.worlds import World

Script = Callable[[World], None]

ITEMS: dict[str, Script] = {}


def item(number: int, part: str = "") -> Callable[[Script], Script]:
    """Enter a script under its number, "009b" for a second part; its docstring says what must be true."""

    def enter(script: Script) -> Script:
        name = f"{number:03d}{part}"
        assert name not in ITEMS, f"item {name} twice"
        assert script.__doc__, f"item {name} does not say what must be true"
        ITEMS[name] = script
        return script

    return enter
