"""Key order of one share partition: offsets blocked by an earlier one with the same key.

Rules: sharegroups/README.md rules 74-79.

How it works: every tracked, unsettled offset with a key is in the queue of its key's hash. Only the first of a queue
may be acquired; the others are BLOCKED. `known_to` is the offset below which all keys of unsettled offsets are known. A
fetch at `known_to` continues there, also over offsets that members hold, so that after a load or a live switch to key
order nothing is acquired before the keys of everything in front of it are known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

HOTTEST_MAX = 5
"""Maximum number of blocked keys in a report."""


class BlockedKey(NamedTuple):
    """A key whose records wait for one another."""

    hash: int
    behind: int
    """Offset that blocks the others."""
    waiting: int
    """Number of records that wait."""


class KeyOrder:
    """Queues of unsettled offsets by key. At most two entries for each tracked offset."""

    def __init__(self, known_to: int) -> None:
        self.known_to = known_to
        self.locked = 0
        """Number of offsets that members hold."""
        self._hashes: dict[int, int] = {}
        """Hash of the key of each unsettled offset below `known_to`."""
        self._queues: dict[int, deque[int]] = {}

    def add(self, offset: int, key_hash: int) -> bool:
        """Add an unsettled offset after all others. Return True if an earlier one has the same key."""
        self._hashes[offset] = key_hash
        queue = self._queues.get(key_hash)
        if queue is None:
            self._queues[key_hash] = deque((offset,))
            return False
        queue.append(offset)
        return True

    def is_blocked(self, offset: int) -> bool:
        """Return True if an earlier unsettled offset has the same key. False for an offset without a key."""
        key_hash = self._hashes.get(offset)
        return key_hash is not None and self._queues[key_hash][0] != offset

    def settle(self, offsets: Iterable[int]) -> list[int]:
        """Remove settled offsets. Return those that are the first of their key now."""
        freed: dict[int, None] = {}
        hashes, queues = self._hashes, self._queues
        for offset in offsets:
            key_hash = hashes.pop(offset, None)
            if key_hash is None:
                continue
            freed.pop(offset, None)
            queue = queues[key_hash]
            was_first = queue[0] == offset
            if was_first:
                queue.popleft()
            elif queue[-1] == offset:
                queue.pop()
            else:
                queue.remove(offset)  # only after a live switch, or if the log lost the record
            if not queue:
                del queues[key_hash]
            elif was_first:
                freed[queue[0]] = None
        return list(freed)

    def below(self, offset: int) -> list[int]:
        """Return the offsets with a key below this one."""
        return [each for each in self._hashes if each < offset]

    def drop_from(self, offset: int) -> None:
        """Forget the keys from this offset on, which the log no longer has."""
        self.settle(sorted((each for each in self._hashes if each >= offset), reverse=True))
        self.known_to = min(self.known_to, offset)

    @property
    def blocked(self) -> int:
        """Number of offsets that wait for an earlier one with the same key."""
        return len(self._hashes) - len(self._queues)

    def hottest(self) -> list[BlockedKey]:
        """Return the keys for which most records wait, most first."""
        longest = nlargest(HOTTEST_MAX, self._queues.items(), key=_length)
        return [BlockedKey(key_hash, queue[0], len(queue) - 1) for key_hash, queue in longest if len(queue) > 1]


def _length(item: tuple[int, deque[int]]) -> int:
    return len(item[1])
