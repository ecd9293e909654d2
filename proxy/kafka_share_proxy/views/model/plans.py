"""Plans: divisions of the hash space into ranges of unequal width, so that hot keys do not all go to one reader.

The format is what the range planner writes (`range_plan.json`):

    {"version": 1, "topic": "orders", "hash": "murmur2-32", "n": 3,
     "ranges": [[0, 100, 0.3], [100, 4000000000, 0.3], [4000000000, 4294967296, 0.4]]}

A range is `[low, high, weight]` or `[low, high]`, half open. Range i is slot i. Rules: views/README.md 6, 7 and 53.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_share_proxy.views.model.names import SLOTS_MAX, SLOTS_MIN, BadViewName, check_plan_id
from kafka_share_proxy.wire.errors import ProxyError

HASH_SPACE = 1 << 32
"""Number of hashes."""
HASH = "murmur2-32"
"""Hash that the ranges refer to."""
VERSION = 1
"""Version of the format."""
FILE_BYTES_MAX = 1 << 20
"""Maximum bytes of a plan. 1024 ranges take about 40 KiB."""
WEIGHT_MAX = 1e100
"""Maximum weight, so that sums stay finite."""


class BadPlan(ProxyError):
    """Raised for a plan that cannot be served. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A stored plan: the ranges of its slots."""

    plan_id: str
    starts: tuple[int, ...]
    """Starts of the ranges, ascending from 0. A range ends where the next one starts."""
    topic: str = ""
    """Topic for which the plan was made, for information only."""
    weights: tuple[float, ...] = field(default=(), compare=False)
    """Share of the load of each range."""

    def __post_init__(self) -> None:
        """Raise BadPlan if the ranges do not cover the hash space, or the plan id is not valid."""
        try:
            check_plan_id(self.plan_id)
        except BadViewName as error:
            raise BadPlan(str(error)) from None
        if not SLOTS_MIN <= len(self.starts) <= SLOTS_MAX:
            raise BadPlan(f"a plan has {SLOTS_MIN} to {SLOTS_MAX} ranges, not {len(self.starts)}")
        ends = (*self.starts[1:], HASH_SPACE)
        if self.starts[0] != 0 or any(start >= end for start, end in zip(self.starts, ends, strict=True)):
            raise BadPlan("the ranges must begin at 0 and ascend to 2^32")
        object.__setattr__(self, "weights", _usable_weights(self.weights, len(self.starts)))

    @property
    def slots(self) -> int:
        return len(self.starts)


def read(plan_id: str, text: str | bytes) -> Plan:
    """Parse a plan of the range planner. Raises BadPlan."""
    if len(text) > FILE_BYTES_MAX:
        raise BadPlan(f"a plan of {len(text)} bytes is larger than {FILE_BYTES_MAX}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"this is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadPlan("a plan is a JSON object")
    _check_head(document)
    ranges = [_range(index, entry) for index, entry in enumerate(_ranges(document))]
    weights: list[Any] = [entry[2] if len(entry) > 2 else None for entry in _ranges(document)]
    return Plan(plan_id, _consecutive_starts(ranges), str(document.get("topic") or ""), tuple(weights))


def _usable_weights(weights: Sequence[Any], ranges: int) -> tuple[float, ...]:
    """Return nothing unless every range has a weight. Earlier plans may have a remark in its place."""
    is_usable = len(weights) == ranges and all(_is_weight(each) for each in weights) and any(weights)
    return tuple(map(float, weights)) if is_usable else ()


def _is_weight(weight: object) -> bool:
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    return is_number and 0 <= weight <= WEIGHT_MAX  # type: ignore[operator]  # NaN compares false


def _check_head(document: Mapping[str, Any]) -> None:
    if document.get("version") != VERSION or isinstance(document["version"], bool):
        raise BadPlan(f"version: {document.get('version')!r} is not known here, only {VERSION}")
    if document.get("hash", HASH) != HASH:
        raise BadPlan(f"hash: {document['hash']!r} is not known here, only {HASH!r}")


def _ranges(document: Mapping[str, Any]) -> Sequence[Any]:
    ranges = document.get("ranges")
    if not isinstance(ranges, list) or not ranges:
        raise BadPlan("ranges: missing; write a list of [low, high] or [low, high, weight]")
    count = document.get("n", len(ranges))
    if count != len(ranges):
        raise BadPlan(f"n: {count!r}, but there are {len(ranges)} ranges")
    return ranges


def _range(index: int, entry: Any) -> tuple[int, int]:
    where = f"ranges[{index}]"
    if not isinstance(entry, list) or not 2 <= len(entry) <= 3:
        raise BadPlan(f"{where}: write [low, high] or [low, high, weight], not {json.dumps(entry)[:80]}")
    low, high = entry[:2]
    for bound in (low, high):
        if not isinstance(bound, int) or isinstance(bound, bool) or not 0 <= bound <= HASH_SPACE:
            raise BadPlan(f"{where}: {json.dumps(bound)[:40]} is no integer from 0 to 2^32")
    if low >= high:
        raise BadPlan(f"{where}: [{low}, {high}) is empty")
    return low, high


def _consecutive_starts(ranges: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the starts of consecutive ranges that cover the hash space."""
    reached = 0
    for index, (low, high) in enumerate(ranges):
        if low > reached:
            raise BadPlan(f"ranges[{index}]: hashes {reached} to {low - 1} are in no range before it")
        if low < reached:
            raise BadPlan(f"ranges[{index}]: begins at {low}, but hashes below {reached} are in the range before it")
        reached = high
    if reached != HASH_SPACE:
        raise BadPlan(f"ranges: hashes {reached} to {HASH_SPACE - 1} are in none")
    return tuple(low for low, _ in ranges)
