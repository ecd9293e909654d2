"""Idle share partitions, held as their stored bytes.

How it works: a Python object costs more memory than the state of an idle share partition. The values of neighbouring
partitions of one topic in one group are concatenated in one bytes object, a *page*: for each its position in the page,
its length, and its value. A page is rebuilt when a value is added or removed, which is cheap and rare. A long value is
kept separately.
"""

from __future__ import annotations

from collections.abc import Iterator

PAGE = 16
"""Partitions per page. With typical values a full page is below 512 bytes, which Python allocates efficiently."""
SHORT_MAX = 200
"""Maximum bytes of a value that is put into a page."""

_NUMBER = 4
_TOPIC_ID = 16


class RestingShares:
    """Encoded snapshots (`snapshot.ShareSnapshot`) by group id, topic id, partition."""

    __slots__ = ("_count", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, dict[bytes, bytes]] = {}
        """Group id -> topic id and page number -> page; topic id, page number and position -> one long value."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, group_id: str, topic_id: bytes, partition: int, value: bytes) -> None:
        """Hold a value, replacing a previous one. The value must not be empty."""
        self.take(group_id, topic_id, partition)
        values = self._groups.setdefault(group_id, {})
        key, slot = _key(topic_id, partition)
        if len(value) > SHORT_MAX:
            values[key + bytes((slot,))] = value
        else:
            values[key] = values.get(key, b"") + bytes((slot, len(value))) + value
        self._count += 1

    def take(self, group_id: str, topic_id: bytes, partition: int) -> bytes | None:
        """Remove and return a value. None if there is none, also for a negative partition number."""
        values = self._groups.get(group_id)
        if values is None or partition < 0:
            return None
        key, slot = _key(topic_id, partition)
        value = _cut(values, key, slot) or values.pop(key + bytes((slot,)), None)
        if value is None:
            return None
        self._count -= 1
        if not values:
            del self._groups[group_id]
        return value

    def get(self, group_id: str, topic_id: bytes, partition: int) -> bytes | None:
        """Return a value, which stays. None if there is none."""
        values = self._groups.get(group_id)
        if values is None or partition < 0:
            return None
        key, slot = _key(topic_id, partition)
        page = values.get(key, b"")
        at, end = _find(page, slot)
        return page[at + 2 : end] if at < end else values.get(key + bytes((slot,)))

    def of_group(self, group_id: str) -> Iterator[tuple[bytes, int]]:
        for key, data in self._groups.get(group_id, {}).items():
            first = int.from_bytes(key[_TOPIC_ID : _TOPIC_ID + _NUMBER], "big") * PAGE
            for slot in _slots(data) if len(key) == _TOPIC_ID + _NUMBER else key[-1:]:
                yield key[:_TOPIC_ID], first + slot

    def topics(self) -> Iterator[tuple[str, bytes]]:
        """Yield (group id, topic id) of all values, some more than once."""
        for group_id, values in self._groups.items():
            for key in values:
                yield group_id, key[:_TOPIC_ID]

    def clear(self) -> None:
        self._groups.clear()
        self._count = 0


def _key(topic_id: bytes, partition: int) -> tuple[bytes, int]:
    """Return the key of the page, and the partition's position in it."""
    number, slot = divmod(partition, PAGE)
    return topic_id + number.to_bytes(_NUMBER, "big"), slot


def _cut(values: dict[bytes, bytes], key: bytes, slot: int) -> bytes | None:
    """Remove and return the value at a position of a page, or None."""
    page = values.get(key, b"")
    at, end = _find(page, slot)
    if at == end:
        return None
    if remaining := page[:at] + page[end:]:
        values[key] = remaining
    else:
        del values[key]
    return page[at + 2 : end]


def _find(page: bytes, slot: int) -> tuple[int, int]:
    """Return begin and end of the value at a position, with its head. The end of the page twice if there is none."""
    at = 0
    while at < len(page):
        end = at + 2 + page[at + 1]
        if page[at] == slot:
            return at, end
        at = end
    return at, at


def _slots(page: bytes) -> Iterator[int]:
    position = 0
    while position < len(page):
        yield page[position]
        position += 2 + page[position + 1]
