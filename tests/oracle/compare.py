"""Compare two transcripts field by field, with a short list of differences that are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Transcript = list[tuple[str, Any]]


@dataclass(frozen=True)
class Allowed:
    """A difference that is meant: where (a pattern over "item/step/path"), the two values, and why."""

    where: str
    native: Any
    proxy: Any
    reason: str

    def covers(self, where: str, native: Any, proxy: Any) -> bool:
        return bool(re.fullmatch(self.where, where)) and (native, proxy) == (self.native, self.proxy)


ALLOWED = (
    Allowed(
        r".*/current_leader/leader_(id|epoch)", 0, -1,
        "Kafka leaves the generated default 0 where there is no hint; franz-go takes any pair of non-negative numbers "
        "in a failed partition for a leader, so the proxy says -1",
    ),
)  # fmt: skip


def differences(item: str, native: Transcript, proxy: Transcript) -> list[str]:
    """Return what differs and is not allowed, as text."""
    return [
        f"{where}: native {one!r}, proxy {other!r}"
        for where, one, other in _walk(item, [*map(list, native)], [*map(list, proxy)])
        if not any(allowed.covers(where, one, other) for allowed in ALLOWED)
    ]


def _walk(where: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            yield from _walk(f"{where}/{name}", one.get(name, "(absent)"), other.get(name, "(absent)"))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from _walk(f"{where}/{index}", *pair)
    elif one != other:
        yield where, one, other
