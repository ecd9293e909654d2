"""Iteration order of java.util.HashMap, in which Java's assignors process members and partitions.

The same members get the same partitions from a Java leader and from this client, so that a change of leader moves no
partition. A bucket that Java splits early or converts into a tree (nine keys of one hash) is not imitated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from kafka_share_proxy.wire.values import TopicPartition

Key = TypeVar("Key")

CAPACITY_MIN = 16
LOAD_FACTOR = 0.75
_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Return String.hashCode as an unsigned 32-bit number, computed over UTF-16 units."""
    units, found = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & _MASK
    return found


def partition_hash(partition: TopicPartition) -> int:
    """Return Java's TopicPartition.hashCode as an unsigned 32-bit number."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _MASK


def capacity(keys: int, least: int = CAPACITY_MIN) -> int:
    """Return the number of buckets of a map after that many keys were added one by one."""
    buckets = least
    while keys > LOAD_FACTOR * buckets:
        buckets *= 2
    return buckets


def hash_order(keys: Iterable[Key], hash_of: Callable[[Key], int]) -> list[Key]:
    """Return the keys, passed in insertion order, in the iteration order of a HashMap."""
    put = list(dict.fromkeys(keys))
    return _in_buckets(put, hash_of, capacity(len(put)))


def string_order(keys: Iterable[str]) -> list[str]:
    """Return strings in `hash_order`."""
    return hash_order(keys, string_hash)


class PartitionHashSet:
    """A HashSet of partitions. Like Java's, its number of buckets never decreases."""

    def __init__(self) -> None:
        self._keys: dict[TopicPartition, None] = {}
        self._capacity = CAPACITY_MIN

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, partition: TopicPartition) -> None:
        """Add a partition at the end of its bucket."""
        self._keys.setdefault(partition)
        self._capacity = capacity(len(self._keys), self._capacity)

    def remove(self, partition: TopicPartition) -> None:
        """Remove a partition. Raises KeyError if it is not in the set."""
        del self._keys[partition]

    def first(self) -> TopicPartition:
        """Return the first element in iteration order. Raises IndexError if the set is empty."""
        return _in_buckets(list(self._keys), partition_hash, self._capacity)[0]


def _in_buckets(put: list[Key], hash_of: Callable[[Key], int], buckets: int) -> list[Key]:
    def bucket(key: Key) -> int:
        hashed = hash_of(key)
        return (hashed ^ hashed >> 16) & (buckets - 1)

    return sorted(put, key=bucket)
