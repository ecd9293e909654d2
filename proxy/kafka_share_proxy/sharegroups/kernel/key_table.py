"""Unsettled offsets by the hash of their key, for key order (sharegroups/README.md rules 74-79).

The C extension `sharegroups.kernel._key_table` holds them, or the Python fallback here; `KERNEL` names the one in use.
With the extension an offset takes 0.05 us until it is settled, with the fallback about 0.5 us.

How it works: every unsettled offset is either the first of its key or waits in the queue of that key. Most keys are
different. Therefore adding and settling are a few operations on whole ranges, and only the keys for which records wait
are treated one by one.
"""

from __future__ import annotations

import secrets
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import compress, repeat
from operator import ne
from typing import Protocol

from kafka_share_proxy.wire import kernels

try:
    from kafka_share_proxy.sharegroups.kernel import _key_table
except ImportError:  # no compiler was available at installation
    _key_table = None  # type: ignore[assignment]

BUILT_VERSION = 1
"""`VERSION` of the extension that matches this file. An older one is not used."""
TRIMMED_AT_ONCE = 1_000
"""Number of settled offsets whose keys are forgotten together."""
INT64_MAX = (1 << 63) - 1


class KeyTable(Protocol):
    """Unsettled offsets by the hash of their key. Arrays have numbers of 64 bits, hashes unsigned ones."""

    @property
    def blocked(self) -> int:
        """Number of offsets that wait for an earlier one with the same key."""

    @property
    def unsettled(self) -> int:
        """Number of offsets that are not settled."""

    def add(self, offsets: array[int], hashes: array[int], /) -> list[int]:
        """Add unsettled offsets, which ascend, after all others.

        Return those that are blocked by an earlier one of the same key.
        """

    def settle(self, ranges: list[tuple[int, int]], /) -> list[int]:
        """Remove ascending, unsettled ranges (first, last). Return the offsets that become the first of their key."""

    def settle_below(self, offset: int, /) -> list[int]:
        """Settle everything below an offset, which the log lost. Return the offsets that become first of their key."""

    def trim(self, offset: int, /) -> None:
        """Forget the keys below the start offset, if they are many: nothing there changes again."""

    def drop_from(self, offset: int, /) -> None:
        """Forget the keys from this offset on, which the log no longer has."""

    def is_blocked(self, offset: int, /) -> bool:
        """Return True if an earlier unsettled offset has the same key. False for an offset without a key."""

    def settled_from(self, offset: int, /) -> int:
        """Return how many settled offsets are tracked from the start offset on."""

    def hottest(self, keys_max: int, /) -> list[tuple[int, int, int]]:
        """Return the keys for which most records wait, most first: hash, offset of the first, number that wait."""


class PythonKeyTable:
    """Python fallback of the table in C."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        """Offsets that were added, ascending. Settled ones remain until `trim`."""
        self._hashes: list[int] = []
        """Hashes of their keys: the objects that are keys of `_first`, because those are found without a comparison."""
        self._first: dict[int, int] = {}
        """First unsettled offset of each key, by hash."""
        self._waiting: dict[int, deque[int]] = {}
        """Other unsettled offsets, ascending, of keys that have some."""
        self.blocked = 0

    @property
    def unsettled(self) -> int:
        return len(self._first) + self.blocked

    def add(self, offsets: array[int], hashes: array[int], /) -> list[int]:
        added, keys = offsets.tolist(), hashes.tolist()
        self._offsets += added
        self._hashes += keys
        firsts = list(map(self._first.setdefault, keys, added))
        if firsts == added:
            return []
        blocked: list[int] = []
        for offset, key_hash in compress(zip(added, keys, strict=True), map(ne, added, firsts)):
            self._waiting.setdefault(key_hash, deque()).append(offset)
            blocked.append(offset)
        self.blocked += len(blocked)
        return blocked

    def settle(self, ranges: list[tuple[int, int]], /) -> list[int]:
        offsets: list[int] = []
        hashes: list[int] = []
        end = 0
        for first, last in ranges:
            begin = bisect_left(self._offsets, first, lo=end)
            end = bisect_left(self._offsets, last + 1, lo=begin)
            offsets += self._offsets[begin:end]
            hashes += self._hashes[begin:end]
        queued = list(compress(zip(offsets, hashes, strict=True), map(self._waiting.__contains__, hashes)))
        first_offsets = {key_hash: self._first[key_hash] for _, key_hash in queued}
        deque(map(self._first.pop, hashes, repeat(None)), maxlen=0)  # a queued key may be settled more than once
        self._first.update(first_offsets)
        return self._settle_queued(queued)

    def _settle_queued(self, settled: Iterable[tuple[int, int]]) -> list[int]:
        """Settle unsettled offsets, which ascend, of keys for which records wait. Offsets with their hashes."""
        freed: dict[int, int] = {}
        for offset, key_hash in settled:
            queue = self._waiting.get(key_hash)
            if queue is None:
                del self._first[key_hash]
                freed.pop(key_hash, None)
                continue
            if self._first[key_hash] == offset:
                self._first[key_hash] = freed[key_hash] = queue.popleft()
            else:
                queue.remove(offset)
            self.blocked -= 1
            if not queue:
                del self._waiting[key_hash]
        return sorted(freed.values())

    def settle_below(self, offset: int, /) -> list[int]:
        freed = self._settle_between([each for each, first in self._first.items() if first < offset], -1, offset - 1)
        self.trim(offset)
        return freed

    def _settle_between(self, hashes: Iterable[int], lowest: int, highest: int) -> list[int]:
        """Settle the unsettled offsets of these keys from `lowest` to `highest`."""
        freed: list[int] = []
        for key_hash in hashes:
            queue = self._waiting.pop(key_hash, deque())
            remaining = deque([offset for offset in queue if not lowest <= offset <= highest])
            self.blocked -= len(queue) - len(remaining)
            if lowest <= self._first[key_hash] <= highest:
                if not remaining:
                    del self._first[key_hash]
                    continue
                self._first[key_hash] = remaining.popleft()
                self.blocked -= 1
                freed.append(self._first[key_hash])
            if remaining:
                self._waiting[key_hash] = remaining
        return sorted(freed)

    def trim(self, offset: int, /) -> None:
        settled = bisect_left(self._offsets, offset)
        if settled >= TRIMMED_AT_ONCE or settled == len(self._offsets):
            del self._offsets[:settled], self._hashes[:settled]

    def drop_from(self, offset: int, /) -> None:
        begin = bisect_left(self._offsets, offset)
        hashes = [key_hash for key_hash in dict.fromkeys(self._hashes[begin:]) if key_hash in self._first]
        self._settle_between(hashes, offset, INT64_MAX)
        del self._offsets[begin:], self._hashes[begin:]

    def is_blocked(self, offset: int, /) -> bool:
        index = bisect_left(self._offsets, offset)
        if index == len(self._offsets) or self._offsets[index] != offset:
            return False
        return self._first.get(self._hashes[index], offset) != offset

    def settled_from(self, offset: int, /) -> int:
        tracked = len(self._offsets) - bisect_left(self._offsets, offset)
        return tracked - self.unsettled

    def hottest(self, keys_max: int, /) -> list[tuple[int, int, int]]:
        keys = ((-len(queue), self._first[key_hash], key_hash) for key_hash, queue in self._waiting.items())
        return [(key_hash, first, -waiting) for waiting, first, key_hash in nsmallest(keys_max, keys)]


KERNEL = kernels.choose("sharegroups.kernel._key_table", _key_table, BUILT_VERSION)
_SEED = secrets.randbits(64)
"""Unknown to clients, which could otherwise choose keys that are slow to find."""


def _c_table() -> KeyTable:
    return _key_table.KeyTable(_SEED)


new_key_table: Callable[[], KeyTable] = _c_table if KERNEL == "c" else PythonKeyTable
"""Return an empty table."""
