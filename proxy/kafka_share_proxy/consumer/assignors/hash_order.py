"""Iteration order of java.util.HashMap, in which Java's assignors process members and partitions.

The same members get the same partitions from a Java leader and from this client, so that a change of leader moves no
partition. Trees of Java (nine keys of one hash) are not imitated.
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
    """Return String.hashCode as unsigned 32 bits."""
    units, value = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _MASK
    return value


def partition_hash(partition: TopicPartition) -> int:
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _MASK


def capacity(keys: int, least: int = CAPACITY_MIN) -> int:
    """Return the number of buckets after that many keys were added one by one."""
    buckets = least
    while keys > LOAD_FACTOR * buckets:
        buckets *= 2
    return buckets


def hash_order(keys: Iterable[Key], hash_of: Callable[[Key], int]) -> list[Key]:
    """Return distinct keys in the order of a HashMap that they were put into one by one."""
    put = list(dict.fromkeys(keys))
    return _in_buckets(put, hash_of, capacity(len(put)))


def string_order(keys: Iterable[str]) -> list[str]:
    return hash_order(keys, string_hash)


class PartitionHashSet:
    """Set of partitions in the order of Java's HashSet, whose number of buckets never decreases."""

    def __init__(self) -> None:
        self._keys: dict[TopicPartition, None] = {}
        self._capacity = CAPACITY_MIN

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, partition: TopicPartition) -> None:
        self._keys.setdefault(partition)
        self._capacity = capacity(len(self._keys), self._capacity)

    def remove(self, partition: TopicPartition) -> None:
        del self._keys[partition]

    def first(self) -> TopicPartition:
        return _in_buckets(list(self._keys), partition_hash, self._capacity)[0]


def _in_buckets(put: list[Key], hash_of: Callable[[Key], int], buckets: int) -> list[Key]:
    def bucket(key: Key) -> int:
        hashed = hash_of(key)
        return (hashed ^ hashed >> 16) & (buckets - 1)

    return sorted(put, key=bucket)
