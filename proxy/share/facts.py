"""What is stored of a share partition: one full snapshot, without locks."""

from __future__ import annotations

from dataclasses import dataclass

AVAILABLE = 0
ACKNOWLEDGED = 2
ARCHIVED = 4
"""Delivery states as Kafka stores them (RecordState, share-groups.md 4.1)."""


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The durable state of one share partition (share-groups.md 7.1)."""

    start_offset: int
    state_epoch: int
    delivery_complete_count: int
    """Terminal offsets at or above start_offset: for the lag only."""
    batches: tuple[tuple[int, int, int, int], ...]
    """(first, last, state, delivery count): 0 available, 2 acknowledged, 4 archived; ascending, not overlapping."""
