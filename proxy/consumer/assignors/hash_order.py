"""The order of java.util.HashMap, in which Java's assignors go through members and partitions.

Whoever leads a group, stock Java or we: the same members get the same partitions. So a change of the leader moves
nothing. A bucket that Java splits early or turns into a tree (nine keys of one hash) is not imitated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from proxy.wire.values import TopicPartition

Key = TypeVar("Key")

CAPACITY_MIN = 16
LOAD_FACTOR = 0.75
_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """String.hashCode as 32 bits without a sign; over UTF-16 units."""
    units, found = text.encode("utf-16-be", "surrogatepass"), 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & _MASK
    return found


def partition_hash(partition: TopicPartition) -> int:
    """The same number as Java's TopicPartition.hashCode."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _MASK


def capacity(keys: int, least: int = CAPACITY_MIN) -> int:
    """Buckets of a map into which so many keys were put one by one."""
    buckets = least
    while keys > LOAD_FACTOR * buckets:
        buckets *= 2
    return buckets


def hash_order(keys: Iterable[Key], hash_of: Callable[[Key], int]) -> list[Key]:
    """Keys, given in the order in which they were put, in the order in which a HashMap goes through them."""
    put = list(dict.fromkeys(keys))
    return _in_buckets(put, hash_of, capacity(len(put)))


def string_order(keys: Iterable[str]) -> list[str]:
    """As `hash_order`, of strings."""
    return hash_order(keys, string_hash)


class PartitionHashSet:
    """A HashSet of partitions: it never has fewer buckets than it once had."""

    def __init__(self) -> None:
        self._keys: dict[TopicPartition, None] = {}
        self._capacity = CAPACITY_MIN

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, partition: TopicPartition) -> None:
        """Put one, behind what its bucket has."""
        self._keys.setdefault(partition)
        self._capacity = capacity(len(self._keys), self._capacity)

    def remove(self, partition: TopicPartition) -> None:
        """Take one out. Raises KeyError: it is not in."""
        del self._keys[partition]

    def first(self) -> TopicPartition:
        """What an iterator gives first. Raises IndexError: it is empty."""
        return _in_buckets(list(self._keys), partition_hash, self._capacity)[0]


def _in_buckets(put: list[Key], hash_of: Callable[[Key], int], buckets: int) -> list[Key]:
    def bucket(key: Key) -> int:
        hashed = hash_of(key)
        return (hashed ^ hashed >> 16) & (buckets - 1)

    return sorted(put, key=bucket)
