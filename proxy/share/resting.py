"""Share partitions that nobody uses: the bytes that were stored of them, and little else.

Held by group, topic and partition, so that the group and the topic are there once for all their partitions, and what
belongs to a group is found without looking at the others.
"""

from __future__ import annotations

from collections.abc import Iterator


class RestingShares:
    """Encoded snapshots (`facts.ShareSnapshot`) by group id, topic id, partition."""

    __slots__ = ("_count", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, dict[bytes, dict[int, bytes]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, group_id: str, topic_id: bytes, partition: int, value: bytes) -> None:
        """Hold this, in place of what was held."""
        held = self._groups.setdefault(group_id, {}).setdefault(topic_id, {})
        before = len(held)
        held[partition] = value
        self._count += len(held) - before

    def take(self, group_id: str, topic_id: bytes, partition: int) -> bytes | None:
        """What is held, which is not held any more; None where nothing is."""
        topics = self._groups.get(group_id)
        held = None if topics is None else topics.get(topic_id)
        value = None if held is None else held.pop(partition, None)
        if topics is None or held is None or value is None:
            return None
        self._count -= 1
        if not held:
            del topics[topic_id]
        if not topics:
            del self._groups[group_id]
        return value

    def of_group(self, group_id: str) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition) of all that is held of a group."""
        for topic_id, held in self._groups.get(group_id, {}).items():
            for partition in held:
                yield topic_id, partition

    def topics(self) -> Iterator[tuple[str, bytes]]:
        """(group id, topic id) of all that is held."""
        for group_id, topics in self._groups.items():
            for topic_id in topics:
                yield group_id, topic_id

    def clear(self) -> None:
        """Hold nothing any more."""
        self._groups.clear()
        self._count = 0
