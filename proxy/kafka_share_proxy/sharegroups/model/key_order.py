"""Key order of one share partition: offsets blocked by an earlier one with the same key.

Rules: sharegroups/README.md rules 74-79.

How it works: every tracked, unsettled offset with a key is either the first of its key or waits in the queue of that
key. Only the first may be acquired; the others are BLOCKED. `known_to` is the offset below which all keys of unsettled
offsets are known. A fetch at `known_to` continues there, also over offsets that members hold, so that after a load or a
live switch to key order nothing is acquired before the keys of everything in front of it are known.

Most keys are different. Therefore adding and settling are a few operations on whole ranges, and only the keys for which
records wait are treated one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import repeat
from typing import NamedTuple

from kafka_share_proxy.wire.records.order_keys import RecordKeys

HOTTEST_MAX = 5
"""Maximum number of blocked keys in a report."""
TRIMMED_AT_ONCE = 1_000
"""Number of settled offsets whose keys are forgotten together."""
INT64_MAX = (1 << 63) - 1
Ranges = Sequence[tuple[int, int]]
"""First and last offset of each."""


class BlockedKey(NamedTuple):
    """A key whose records wait for one another."""

    hash: int
    behind: int
    """Offset that blocks the others."""
    waiting: int
    """Number of records that wait."""


class KeyOrder:
    """Unsettled offsets by key, and the key of each tracked offset."""

    def __init__(self, known_to: int) -> None:
        self.known_to = known_to
        self.locked = 0
        """Number of offsets that members hold."""
        self._offsets: list[int] = []
        """Offsets that were added, ascending. Settled ones remain until `trim`."""
        self._hashes: list[int] = []
        """Hashes of their keys: the objects that are keys of `_first`, because those are found without a comparison."""
        self._first: dict[int, int] = {}
        """First unsettled offset of each key, by hash."""
        self._waiting: dict[int, deque[int]] = {}
        """Other unsettled offsets, ascending, of keys that have some."""
        self.blocked = 0
        """Number of offsets that wait for an earlier one with the same key."""

    def add(self, keys: RecordKeys) -> list[int]:
        """Add unsettled offsets after all others. Return those that are blocked by an earlier one of the same key."""
        hashes, offsets = keys.hashes.tolist(), keys.offsets.tolist()
        self._offsets += offsets
        self._hashes += hashes
        firsts = list(map(self._first.setdefault, hashes, offsets))
        if firsts == offsets:
            return []
        blocked: list[int] = []
        for offset, first, key_hash in zip(offsets, firsts, hashes, strict=True):
            if offset != first:
                self._waiting.setdefault(key_hash, deque()).append(offset)
                blocked.append(offset)
        self.blocked += len(blocked)
        return blocked

    def is_blocked(self, offset: int) -> bool:
        """Return True if an earlier unsettled offset has the same key. False for an offset without a key."""
        index = bisect_left(self._offsets, offset)
        if index == len(self._offsets) or self._offsets[index] != offset:
            return False
        return self._first.get(self._hashes[index], offset) != offset

    def settle(self, ranges: Ranges) -> list[int]:
        """Remove ascending, unsettled ranges. Return the offsets that are the first of their key now."""
        hashes: list[int] = []
        for first, last in ranges:
            begin = bisect_left(self._offsets, first)
            hashes += self._hashes[begin : bisect_left(self._offsets, last + 1, lo=begin)]
        queued = self._waiting.keys() & hashes if self._waiting else ()
        if not queued:
            deque(map(self._first.pop, hashes), maxlen=0)
            return []
        kept = {key_hash: self._first[key_hash] for key_hash in queued}
        deque(map(self._first.pop, hashes, repeat(None)), maxlen=0)  # a queued key may be settled more than once
        self._first.update(kept)
        return self._settle_queued(queued, ranges)

    def _settle_queued(self, hashes: Iterable[int], ranges: Ranges) -> list[int]:
        """Settle offsets of these keys, some of which have several unsettled offsets."""
        freed: list[int] = []
        firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
        lowest, highest = firsts[0], lasts[-1]
        for key_hash in hashes:
            queue = self._waiting.pop(key_hash, deque())
            if queue and queue[-1] >= lowest and queue[0] <= highest:
                remaining = deque([offset for offset in queue if not _contains(firsts, lasts, offset)])
                self.blocked -= len(queue) - len(remaining)
                queue = remaining
            if _contains(firsts, lasts, self._first[key_hash]):
                if not queue:
                    del self._first[key_hash]
                    continue
                self._first[key_hash] = queue.popleft()
                self.blocked -= 1
                freed.append(self._first[key_hash])
            if queue:
                self._waiting[key_hash] = queue
        return freed

    def settled_from(self, start_offset: int) -> int:
        """Return how many settled offsets are tracked from the start offset on."""
        tracked = len(self._offsets) - bisect_left(self._offsets, start_offset)
        return tracked - len(self._first) - self.blocked

    def settle_below(self, offset: int) -> list[int]:
        """Settle everything below an offset, which the log lost. Return the offsets that are first of their key."""
        hashes = [key_hash for key_hash, first in self._first.items() if first < offset]
        freed = self._settle_queued(hashes, [(-1, offset - 1)])
        self.trim(offset)
        return freed

    def trim(self, offset: int) -> None:
        """Forget the keys below the start offset, if they are many: nothing there changes again."""
        settled = bisect_left(self._offsets, offset)
        if settled >= TRIMMED_AT_ONCE or settled == len(self._offsets):
            del self._offsets[:settled], self._hashes[:settled]

    def drop_from(self, offset: int) -> None:
        """Forget the keys from this offset on, which the log no longer has."""
        begin = bisect_left(self._offsets, offset)
        hashes = [key_hash for key_hash in dict.fromkeys(self._hashes[begin:]) if key_hash in self._first]
        self._settle_queued(hashes, [(offset, INT64_MAX)])
        del self._offsets[begin:], self._hashes[begin:]
        self.known_to = min(self.known_to, offset)

    def hottest(self) -> list[BlockedKey]:
        """Return the keys for which most records wait, most first."""
        longest = nlargest(HOTTEST_MAX, self._waiting.items(), key=_length)
        return [BlockedKey(key_hash, self._first[key_hash], len(queue)) for key_hash, queue in longest]


def _contains(firsts: Sequence[int], lasts: Sequence[int], offset: int) -> bool:
    index = bisect_left(lasts, offset)
    return index < len(lasts) and firsts[index] <= offset


def _length(item: tuple[int, deque[int]]) -> int:
    return len(item[1])
