"""Acquisition locks of one share group that the brokers serve, as far as its requests show them. No I/O.

Brokers do not list their locks. After all requests of a group were followed for the duration of a lock, they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafka_share_proxy.wire.values import TopicIdPartition

LOCKS_MAX = 1_000_000
"""Maximum number of locked offsets that are followed."""
RANGE_MAX = 100_000
"""Maximum number of offsets in one range of a request or response. Kafka allows windows of at most 10,000 records."""


class TooManyLocks(ValueError):
    """More than LOCKS_MAX offsets are locked, or a range has more than RANGE_MAX."""


class _Lock(NamedTuple):
    member_id: str
    ends: float


class ForwardedLocks:
    """Locks by partition and offset."""

    def __init__(self) -> None:
        self._locks: dict[TopicIdPartition, dict[int, _Lock]] = {}
        self._count = 0

    def acquired(self, topic_partition: TopicIdPartition, first: int, last: int, member_id: str, ends: float) -> None:
        """Add or replace the locks of a range, or extend renewed ones. Raises TooManyLocks."""
        locks = self._locks.setdefault(topic_partition, {})
        count_before = len(locks)
        lock = _Lock(member_id, ends)
        for offset in _offsets(first, last):
            locks[offset] = lock
        self._count += len(locks) - count_before
        if self._count > LOCKS_MAX:
            raise TooManyLocks(f"more than {LOCKS_MAX} locked records")

    def settled(self, topic_partition: TopicIdPartition, first: int, last: int) -> None:
        """Remove the locks of a range. Raises TooManyLocks."""
        locks = self._locks.get(topic_partition, {})
        for offset in _offsets(first, last):
            self._count -= locks.pop(offset, None) is not None

    def session_ended(self, member_id: str) -> None:
        """Remove the locks of a member, which the broker has released."""
        self._keep(lambda lock: lock.member_id != member_id)

    def expire(self, now: float) -> None:
        self._keep(lambda lock: lock.ends > now)

    def __len__(self) -> int:
        return self._count

    def bounds(self) -> list[tuple[TopicIdPartition, int, int]]:
        """Return the lowest and the highest locked offset of each partition."""
        return sorted(
            (topic_partition, min(locks), max(locks)) for topic_partition, locks in self._locks.items() if locks
        )

    def _keep(self, is_kept: Callable[[_Lock], bool]) -> None:
        for topic_partition, locks in list(self._locks.items()):
            remaining_locks = {offset: lock for offset, lock in locks.items() if is_kept(lock)}
            self._count -= len(locks) - len(remaining_locks)
            if remaining_locks:
                self._locks[topic_partition] = remaining_locks
            else:
                del self._locks[topic_partition]


def _offsets(first: int, last: int) -> Iterable[int]:
    if last - first >= RANGE_MAX:
        raise TooManyLocks(f"a range of {last - first + 1} offsets")
    return range(first, last + 1)
