"""Share partitions that nobody uses: the bytes that were stored of them, and little else.

Theory of operation. A Python object costs more than what is to be remembered of an idle share partition, hardly more
than an offset. So the values of neighbouring partitions of one topic in one group lie behind each other in one bytes
object, a *page*: for each its place in the page, its length, and what was stored. A page is made anew when one of them
comes or goes: cheap, because it is small, and rare, because what rests is not in use. A value that is long is kept by
itself, so that pages stay small.
"""

from __future__ import annotations

from collections.abc import Iterator

PAGE = 16
"""Partitions of a page. With the usual value a full one is below 512 bytes, which is what Python allocates well."""
SHORT_MAX = 200
"""Bytes of a value that is put into a page."""

_NUMBER = 4
_TOPIC_ID = 16


class RestingShares:
    """Encoded snapshots (`facts.ShareSnapshot`) by group id, topic id, partition."""

    __slots__ = ("_count", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, dict[bytes, bytes]] = {}
        """Group id -> topic id and number of the page -> page; topic id, page and place -> one long value."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, group_id: str, topic_id: bytes, partition: int, value: bytes) -> None:
        """Hold this, in place of what was held. The value is not empty."""
        self.take(group_id, topic_id, partition)
        held = self._groups.setdefault(group_id, {})
        key, place = _key(topic_id, partition)
        if len(value) > SHORT_MAX:
            held[key + bytes((place,))] = value
        else:
            held[key] = held.get(key, b"") + bytes((place, len(value))) + value
        self._count += 1

    def take(self, group_id: str, topic_id: bytes, partition: int) -> bytes | None:
        """What is held, which is not held any more; None where nothing is, as of a number that is no partition's."""
        held = self._groups.get(group_id)
        if held is None or partition < 0:
            return None
        key, place = _key(topic_id, partition)
        value = _cut(held, key, place) or held.pop(key + bytes((place,)), None)
        if value is None:
            return None
        self._count -= 1
        if not held:
            del self._groups[group_id]
        return value

    def of_group(self, group_id: str) -> Iterator[tuple[bytes, int]]:
        """(topic id, partition) of all that is held of a group."""
        for key, data in self._groups.get(group_id, {}).items():
            first = int.from_bytes(key[_TOPIC_ID : _TOPIC_ID + _NUMBER], "big") * PAGE
            for place in _places(data) if len(key) == _TOPIC_ID + _NUMBER else key[-1:]:
                yield key[:_TOPIC_ID], first + place

    def topics(self) -> Iterator[tuple[str, bytes]]:
        """(group id, topic id) of all that is held; some more than once."""
        for group_id, held in self._groups.items():
            for key in held:
                yield group_id, key[:_TOPIC_ID]

    def clear(self) -> None:
        """Hold nothing any more."""
        self._groups.clear()
        self._count = 0


def _key(topic_id: bytes, partition: int) -> tuple[bytes, int]:
    """The key of the page, and the partition's place in it."""
    number, place = divmod(partition, PAGE)
    return topic_id + number.to_bytes(_NUMBER, "big"), place


def _cut(held: dict[bytes, bytes], key: bytes, place: int) -> bytes | None:
    """Take the value at a place out of its page; None where there is none."""
    page = held.get(key)
    position = 0
    while page is not None and position < len(page):
        end = position + 2 + page[position + 1]
        if page[position] == place:
            left = page[:position] + page[end:]
            if left:
                held[key] = left
            else:
                del held[key]
            return page[position + 2 : end]
        position = end
    return None


def _places(page: bytes) -> Iterator[int]:
    position = 0
    while position < len(page):
        yield page[position]
        position += 2 + page[position + 1]
