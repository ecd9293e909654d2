"""Pushdown of Spark's predicates on keys, partitions and offsets, never on times (pipeline/README.md rule 19).

Timestamps set by producers are not in the order of offsets, so a predicate on them narrows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from kafka_share_proxy.pipeline.source.splits import KEYS_MAX


class Predicate(NamedTuple):
    """Restriction of a read beyond its options."""

    keys: tuple[bytes, ...] | None = None
    """Keys to read; None for all."""
    partitions: frozenset[int] | None = None
    low: int = 0
    high: int | None = None
    """Upper end of the offsets `low` to `high`, half open. None for no limit."""

    def narrowed(self, filters: Iterable[Filter]) -> tuple[Predicate, list[Filter]]:
        """Return this predicate narrowed by the filters, and the filters that Spark must still apply."""
        made, left = self, []
        for each in filters:
            name = ".".join(each.attribute) if hasattr(each, "attribute") else ""
            taker = _TAKERS.get(name)
            taken = None if taker is None else taker(made, each)
            if taken is None or name == "key":
                left.append(each)
            made = taken or made
        return made, left


def _values(given: Filter) -> set[Any] | None:
    if isinstance(given, EqualTo):
        return {given.value}
    return set(given.value) if isinstance(given, In) else None


def _take_keys(made: Predicate, given: Filter) -> Predicate | None:
    values = _values(given)
    if values is None or not all(isinstance(each, bytes | bytearray) for each in values):
        return None
    keys = {bytes(each) for each in values}
    keys = keys if made.keys is None else keys & set(made.keys)
    return made._replace(keys=tuple(sorted(keys))) if len(keys) <= KEYS_MAX else None


def _take_partitions(made: Predicate, given: Filter) -> Predicate | None:
    values = _values(given)
    if values is None:
        return None
    chosen = frozenset(values) if made.partitions is None else made.partitions & values
    return made._replace(partitions=chosen)


def _take_offsets(made: Predicate, given: Filter) -> Predicate | None:
    low, high = made.low, made.high
    if isinstance(given, EqualTo):
        low, below = max(low, given.value), given.value + 1
    elif isinstance(given, GreaterThan | GreaterThanOrEqual):
        return made._replace(low=max(low, given.value + isinstance(given, GreaterThan)))
    elif isinstance(given, LessThan | LessThanOrEqual):
        below = given.value + isinstance(given, LessThanOrEqual)
    else:
        return None
    return made._replace(low=low, high=below if high is None else min(high, below))


_TAKERS: dict[str, Callable[[Predicate, Filter], Predicate | None]] = {
    "key": _take_keys,
    "partition": _take_partitions,
    "offset": _take_offsets,
}
