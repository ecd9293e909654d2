"""Assigned partitions and the position of each one (SubscriptionState.java).

The position is the next offset that the application gets. `fetch_from` is ahead of it by the records in the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import count

from kafka_share_proxy.consumer.metadata_requests import NO_EPOCH, LeaderAndEpoch
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition

UNKNOWN_LEADER = LeaderAndEpoch()


class PositionState(Enum):
    """Step that a position needs before it can be fetched (SubscriptionState.FetchStates)."""

    INITIALIZING = "initializing"
    RESETTING = "resetting"
    VALIDATING = "validating"
    """The log may be truncated below the position."""
    FETCHING = "fetching"
    FINISHED = "finished"
    """The end of its last range was fetched."""


@dataclass(slots=True)
class Position:
    """Position and fetch state of one assigned partition."""

    state: PositionState = PositionState.INITIALIZING
    offset: int | None = None
    """Next offset that the application gets. None until it is known."""
    fetch_from: int = 0
    """Next offset to fetch. Valid when `offset` is not None."""
    fetched_to: int = 0
    """Next offset after the last fetched record. Lower than `fetch_from` if offsets between ranges are skipped."""
    record_epoch: int = NO_EPOCH
    """Leader epoch of the last fetched record, for the detection of truncated logs."""
    leader: LeaderAndEpoch = UNKNOWN_LEADER
    paused: bool = False
    held_back: bool = False
    """True while the partition is being revoked."""
    is_queried: bool = False
    """True while a request for the step of `state` is queued or in flight."""
    problem: Exception | None = None
    """Reason why no start offset was found. The next poll or seek of the application clears it."""
    not_before: float = -math.inf
    """Time before which no fetch is sent after a refusal; monotonic seconds."""
    preferred: tuple[int, float] | None = None
    """Follower that the leader prefers (KIP-392), and until when."""
    moves: int = 0
    """Number that changes with each seek, reset, assignment and revocation, and makes earlier requests stale."""
    ranges: tuple[OffsetSpan, ...] | None = None
    """Ranges to read, ascending. None: all offsets without an end."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    processed: OffsetSpan | None = None
    """Offsets that the application has received since the assignment."""

    def add_processed(self, span: OffsetSpan | None) -> None:
        if span is not None:
            before = span if self.processed is None else self.processed
            self.processed = OffsetSpan(min(before.start, span.start), max(before.end, span.end))

    def lag(self, *, read_committed: bool) -> int | None:
        """Return the number of offsets up to the end (KIP-695). None if one of them is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        return None if end is None or self.offset is None else max(0, end - self.offset)

    @property
    def has_unread(self) -> bool:
        """True if fetched records were not returned yet."""
        return self.offset is not None and self.offset < self.fetched_to

    @property
    def until(self) -> int | None:
        """End of the range of `fetch_from`, if any."""
        return next((each.end for each in self.ranges or () if self.fetch_from < each.end), None)

    @property
    def is_returnable(self) -> bool:
        """True if the application may receive records now."""
        return self.offset is not None and not self.paused and not self.held_back


class Positions:
    """Positions of the assigned partitions. Only the network side changes them."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, Position] = {}
        self._moves = count(1)

    def __contains__(self, partition: object) -> bool:
        return partition in self._positions

    def __getitem__(self, partition: TopicPartition) -> Position:
        return self._positions[partition]

    @property
    def assigned(self) -> Partitions:
        """Assigned partitions, including those that are paused or being revoked."""
        return frozenset(self._positions)

    def get(self, partition: TopicPartition) -> Position | None:
        return self._positions.get(partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions. Those that stay keep their position and their paused state."""
        before, partitions_in_order = self._positions, sorted(partitions)
        self.drop(before.keys() - set(partitions_in_order))
        self._positions = {each: before.get(each) or Position(moves=next(self._moves)) for each in partitions_in_order}

    def include(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the assigned ones."""
        self.assign({*self._positions, *partitions})

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            position = self._positions.pop(each, None)
            if position is not None:
                position.moves = next(self._moves)

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and return nothing of partitions that are being revoked."""
        for each in self._known(partitions):
            each.held_back = True

    def end_hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        for each in self._known(partitions):
            each.held_back = False

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for each in self._known(partitions):
            each.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for each in self._known(partitions):
            each.paused = False

    def seek(
        self,
        partition: TopicPartition,
        offset: int,
        record_epoch: int = NO_EPOCH,
        ranges: tuple[OffsetSpan, ...] | None = None,
    ) -> None:
        """Set the position. Buffered records become stale."""
        position = self._positions.get(partition)
        if position is not None:
            position.state = PositionState.FETCHING
            position.offset, position.ranges = offset, ranges
            self.fetched(partition, offset, record_epoch)
            position.is_queried, position.problem = False, None
            position.moves = next(self._moves)

    def truncate(self, partition: TopicPartition, end_offset: int, epoch: int) -> None:
        """Seek to the end of an epoch, or to the position if that is lower (KIP-320, KIP-595)."""
        position = self._positions[partition]
        offset = end_offset if position.offset is None else min(end_offset, position.offset)
        self.seek(partition, offset, epoch if offset == end_offset else NO_EPOCH, position.ranges)

    def fetched(self, partition: TopicPartition, next_offset: int, record_epoch: int) -> None:
        """Advance to `next_offset`, or to the next range, where the leader epoch is unknown."""
        position = self._positions[partition]
        position.fetch_from = position.fetched_to = next_offset
        position.record_epoch = record_epoch
        if position.ranges is None:
            return
        begin = next((max(next_offset, each.start) for each in position.ranges if next_offset < each.end), None)
        if begin is None:
            position.state = PositionState.FINISHED
        elif begin != next_offset:
            position.fetch_from, position.record_epoch = begin, NO_EPOCH

    def reset(self, partition: TopicPartition) -> None:
        """Look up the position by the reset policy. Buffered records become stale."""
        position = self._positions.get(partition)
        if position is not None:
            position.state = PositionState.RESETTING
            position.offset = None
            position.is_queried = False
            position.moves = next(self._moves)

    def consumed(self, partition: TopicPartition, next_offset: int) -> None:
        """Advance the position past records that the application has received."""
        position = self._positions.get(partition)
        if position is not None:
            if position.offset is not None and position.offset < next_offset:
                position.add_processed(OffsetSpan(position.offset, next_offset))
            position.offset = next_offset

    def retry(self) -> None:
        """Look up start offsets again that were not found."""
        for position in self._positions.values():
            if position.problem is not None:
                position.is_queried, position.problem = False, None

    def missing(self, state: PositionState) -> list[TopicPartition]:
        """Return the partitions in a state whose step has not been requested."""
        return [
            each for each, position in self._positions.items() if position.state is state and not position.is_queried
        ]

    def fetchable(self) -> list[TopicPartition]:
        return [
            each
            for each, position in self._positions.items()
            if position.state is PositionState.FETCHING and not position.paused and not position.held_back
        ]

    def _known(self, partitions: Iterable[TopicPartition]) -> list[Position]:
        return [self._positions[each] for each in partitions if each in self._positions]
