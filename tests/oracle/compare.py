"""Compare two transcripts field by field, with a short list of differences that are meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Transcript = list[tuple[str, Any]]


@dataclass(frozen=True)
class Allowed:
    """A difference that is meant: where (a pattern over "item/step/path"), which values, and why."""

    where: str
    values: Callable[[Any, Any], bool]
    """Given the native one and the proxy's: whether they are meant."""
    reason: str

    def covers(self, where: str, native: Any, proxy: Any) -> bool:
        return bool(re.fullmatch(self.where, where)) and self.values(native, proxy)


ALLOWED = (
    Allowed(
        r".*/current_leader/leader_(id|epoch)", lambda native, proxy: (native, proxy) == (0, -1),
        "Kafka leaves the generated default 0 where there is no hint; franz-go takes any pair of non-negative numbers "
        "in a failed partition for a leader, so the proxy says -1",
    ),
    Allowed(
        r".*/(group|member|assignment)_epoch", lambda native, proxy: native > 0 and proxy > 0,
        "Kafka counts the initialisation of a partition's state as a change of the group, the proxy initialises at "
        "once; clients need positive epochs that grow",
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
