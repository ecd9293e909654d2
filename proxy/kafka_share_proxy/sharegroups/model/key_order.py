"""Key order of one share partition: offsets blocked by an earlier one with the same key.

Rules: sharegroups/README.md rules 74-79.

How it works: every tracked, unsettled offset with a key is either the first of its key or waits in the queue of that
key (`key_table`). Only the first may be acquired; the others are BLOCKED. `known_to` is the offset below which all keys
of unsettled offsets are known. A fetch at `known_to` continues there, also over offsets that members hold, so that
after a load or a live switch to key order nothing is acquired before the keys of everything in front of it are known.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_share_proxy.sharegroups.kernel.key_table import new_key_table
from kafka_share_proxy.wire.records.order_keys import RecordKeys

HOTTEST_MAX = 5
"""Maximum number of blocked keys in a report."""


class BlockedKey(NamedTuple):
    """A key whose records wait for one another."""

    hash: int
    blocking_offset: int
    """Offset that blocks the others."""
    waiting: int
    """Number of records that wait."""


class KeyOrder:
    """Unsettled offsets by key, and the key of each tracked offset."""

    def __init__(self, known_to: int) -> None:
        self.known_to = known_to
        self.locked = 0
        """Number of offsets that members hold."""
        table = new_key_table()
        self._table = table
        self.is_blocked = table.is_blocked
        self.settle = table.settle
        self.settle_below = table.settle_below
        self.settled_from = table.settled_from
        self.trim = table.trim

    @property
    def blocked(self) -> int:
        """Number of offsets that wait for an earlier one with the same key."""
        return self._table.blocked

    @property
    def unsettled(self) -> int:
        """Number of offsets with a key that are not settled."""
        return self._table.unsettled

    def add(self, keys: RecordKeys) -> list[int]:
        """Add unsettled offsets after all others. Return those that are blocked by an earlier one of the same key."""
        return self._table.add(keys.offsets, keys.hashes)

    def drop_from(self, offset: int) -> None:
        """Forget the keys from this offset on, which the log no longer has."""
        self._table.drop_from(offset)
        self.known_to = min(self.known_to, offset)

    def hottest(self) -> list[BlockedKey]:
        """Return the keys for which most records wait, most first."""
        return [BlockedKey(*key) for key in self._table.hottest(HOTTEST_MAX)]
