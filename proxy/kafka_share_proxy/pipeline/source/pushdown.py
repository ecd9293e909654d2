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
    partitions: frozenset[int] | None = None
    low: int = 0
    high: int | None = None
    """Upper end of the offsets `low` to `high`, half open. None for no limit."""

    def narrowed(self, filters: Iterable[Filter]) -> tuple[Predicate, list[Filter]]:
        """Return the restriction with these filters, and the filters that Spark must still apply."""
        predicate, remaining = self, []
        for each in filters:
            name = ".".join(each.attribute) if hasattr(each, "attribute") else ""
            taker = _TAKERS.get(name)
            narrower_predicate = None if taker is None else taker(predicate, each)
            if narrower_predicate is None or name == "key":
                remaining.append(each)
            predicate = narrower_predicate or predicate
        return predicate, remaining


def _values(condition: Filter) -> set[Any] | None:
    if isinstance(condition, EqualTo):
        return {condition.value}
    return set(condition.value) if isinstance(condition, In) else None


def _take_keys(predicate: Predicate, condition: Filter) -> Predicate | None:
    values = _values(condition)
    if values is None or not all(isinstance(each, bytes | bytearray) for each in values):
        return None
    keys = {bytes(each) for each in values}
    keys = keys if predicate.keys is None else keys & set(predicate.keys)
    return predicate._replace(keys=tuple(sorted(keys))) if len(keys) <= KEYS_MAX else None


def _take_partitions(predicate: Predicate, condition: Filter) -> Predicate | None:
    values = _values(condition)
    if values is None:
        return None
    chosen = frozenset(values) if predicate.partitions is None else predicate.partitions & values
    return predicate._replace(partitions=chosen)


def _take_offsets(predicate: Predicate, condition: Filter) -> Predicate | None:
    low, high = predicate.low, predicate.high
    if isinstance(condition, EqualTo):
        low, below = max(low, condition.value), condition.value + 1
    elif isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return predicate._replace(low=max(low, condition.value + isinstance(condition, GreaterThan)))
    elif isinstance(condition, LessThan | LessThanOrEqual):
        below = condition.value + isinstance(condition, LessThanOrEqual)
    else:
        return None
    return predicate._replace(low=low, high=below if high is None else min(high, below))


_TAKERS: dict[str, Callable[[Predicate, Filter], Predicate | None]] = {
    "key": _take_keys,
    "partition": _take_partitions,
    "offset": _take_offsets,
}
