"""The list of numbered items: what every world that serves share groups does.

An item is a script over one `World`. Numbers are names and nothing else: other tests say "item 52", or begin a
docstring with [52], where they check the same by smaller means. Those without a script are in
`test_two_worlds.ELSEWHERE` and `CLIENT_ONLY`. Sources: KIP-932, KIP-1222, KIP-1226, KIP-1240; measured on Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.worlds import World

Script = Callable[[World], None]

ITEMS: dict[str, Script] = {}


def item(number: int, part: str = "") -> Callable[[Script], Script]:
    """Enter a script under its number, "009b" for a second part; its docstring says what is expected."""

    def enter(script: Script) -> Script:
        name = f"{number:03d}{part}"
        assert name not in ITEMS, f"item {name} twice"
        assert script.__doc__, f"item {name} does not say what is expected"
        ITEMS[name] = script
        return script

    return enter
