"""One share partition: which offsets are free, held, settled (share-groups.md 4-6; Kafka's SharePartition).

(Being filled in: the signatures below are what the other rooms may rely on.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from proxy.errors import ErrorCode
from proxy.share.facts import ShareSnapshot
from proxy.share.locks import LockIndex


class LogBatch(Protocol):
    """What the engine needs to know of a record batch that was read (wire.records.BatchHeader has it)."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


class PartitionSettings(Protocol):
    """The part of share.settings.GroupSettings the engine reads; pass the settings in force at the call."""

    @property
    def lock_duration_s(self) -> float: ...
    @property
    def delivery_count_limit(self) -> int: ...
    @property
    def max_record_locks(self) -> int: ...
    @property
    def renew_enabled(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Read:
    """What one upstream Fetch (or the cache) gave for this partition, bounded by the group's isolation level."""

    fetch_offset: int
    """The offset that was asked for: next_fetch_offset() at that time."""
    batches: Sequence[LogBatch]
    """Ascending, whole log batches. Empty = nothing new."""
    aborted: Sequence[tuple[int, int]] = ()
    """reading.aborted_ranges(...) under read_committed; () under read_uncommitted."""


class Acquisition(NamedTuple):
    """The answer to an acquire; applied at once, nothing has to be stored for it."""

    ranges: tuple[tuple[int, int, int], ...]
    """(first, last, delivery count): AcquiredRecords, ascending, not overlapping. Empty = nothing acquired."""
    count: int
    """Offsets acquired: what the partition uses up of the request's MaxRecords."""
    first_batch: int
    """Index into read.batches of the first log batch to send; 0 when nothing was acquired."""
    last_batch: int
    """Index of the last log batch to send, included; -1 when nothing was acquired."""
    lock_deadline: float


class Refusal(NamedTuple):
    """An acknowledgement that failed: the code of the whole partition."""

    error: ErrorCode
    message: str


class Transition:
    """A decided change waiting to be stored. Hand it to snapshot(), then to apply() or revert(), once."""

    changes: tuple[tuple[int, int, int, int], ...]
    """(first, last, state, delivery count), ascending. Empty = nothing to store: answer at once, no append."""


class SharePartition:
    """All state of one (group, topic, partition). Pure: no clock, no I/O; `now` is monotonic seconds."""

    key: Hashable
    start_offset: int
    end_offset: int
    """Last offset of the window, start_offset - 1 when it is empty."""

    def __init__(
        self, start_offset: int, state_epoch: int = 0, *, locks: LockIndex | None = None, key: Hashable = None
    ) -> None:
        """`locks`: the coordinator's shared index; `key`: the coordinator's name for this partition."""

    @classmethod
    def from_snapshot(
        cls, snapshot: ShareSnapshot, *, locks: LockIndex | None = None, key: Hashable = None
    ) -> SharePartition:
        """State without locks (4.2 "At load"). ValueError when the batches overlap or start below the start offset."""

    def next_fetch_offset(self) -> int:
        """Where the next read must start: the first free offset in the window, else end_offset + 1."""

    def can_acquire(self, settings: PartitionSettings) -> bool:
        """Whether a read makes sense: something is free in the window, or it may grow."""

    def acquire(
        self, member_id: str, read: Read, max_records: int, batch_size: int, record_limit: bool,
        settings: PartitionSettings, now: float,
    ) -> Acquisition:
        """Lock records for a member (4.3-4.5, 4.8)."""

    def decide_acknowledge(
        self, member_id: str, batches: Sequence[tuple[int, int, Sequence[int]]], renew_allowed: bool,
        settings: PartitionSettings, now: float,
    ) -> Transition | Refusal:
        """Judge (first, last, types) batches: 6.1 then 6.2. renew_allowed = version >= 2 and IsRenewAck.

        Renewals happen here and now (also those before a refusal); everything else waits for apply().
        """

    def decide_release(self, member_id: str, settings: PartitionSettings) -> Transition | None:
        """The member's session ended (3.6). None when it held nothing."""

    def decide_release_all(self, settings: PartitionSettings) -> Transition | None:
        """The leader moved: nobody holds anything any more."""

    def expire(self, expired: Iterable[object], settings: PartitionSettings) -> Transition | None:
        """Free what LockIndex.expired(now) returned for this partition (4.6): in memory at once.

        The transition is only for storing it; apply() it whether or not that works.
        """

    def apply(self, transition: Transition) -> None:
        """The transition is durable: settle it and move the start offset."""

    def revert(self, transition: Transition, now: float, settings: PartitionSettings) -> None:
        """The store refused: records go back to their holders, or become free if the lock ended meanwhile."""

    def move_log_start(self, offset: int) -> None:
        """The log now starts at `offset` (4.7). Ignored when it is not beyond the start offset."""

    def snapshot(self, *transitions: Transition) -> ShareSnapshot:
        """What to store: the confirmed state plus the given transitions as if applied."""
