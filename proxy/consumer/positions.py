"""What is assigned, and from where each partition is read on (SubscriptionState.java).

A partition has no position until somebody finds one: what is committed, else what the reset policy says. The position
is the next offset that the application gets; `fetch_from` runs ahead of it by what waits in the buffer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import count

from proxy.consumer.metadata_requests import NO_EPOCH, LeaderAndEpoch
from proxy.consumer.partitions import Partitions
from proxy.offsets.ranges import OffsetSpan
from proxy.wire.values import TopicPartition

UNKNOWN_LEADER = LeaderAndEpoch()


class PositionState(Enum):
    """What is missing before a partition can be fetched (SubscriptionState.FetchStates)."""

    INITIALIZING = "initializing"
    """What is committed is not known."""
    RESETTING = "resetting"
    """The offset of the reset policy is not known."""
    VALIDATING = "validating"
    """Whether the log was cut before the position is not known."""
    FETCHING = "fetching"
    FINISHED = "finished"
    """The end of its last range was fetched."""


@dataclass(slots=True)
class Position:
    """Of one assigned partition."""

    state: PositionState = PositionState.INITIALIZING
    offset: int | None = None
    """The next one for the application; None until it is known."""
    fetch_from: int = 0
    """The next one to ask a broker for; known when `offset` is."""
    fetched_to: int = 0
    """Behind the last batch that came: below `fetch_from` where a range that is not read lies between."""
    record_epoch: int = NO_EPOCH
    """Leader epoch of the last record before `fetch_from`."""
    leader: LeaderAndEpoch = UNKNOWN_LEADER
    """With which `fetch_from` was last known to be right."""
    paused: bool = False
    """The application asked for no records of it."""
    held_back: bool = False
    """To be revoked: nothing is fetched or returned."""
    asking: bool = False
    """Somebody has asked for what is missing."""
    problem: Exception | None = None
    """Why it has no offset, and gets none until the application polls again, or seeks."""
    not_before: float = -math.inf
    """Until then no broker is asked: the last one refused; seconds, monotonic."""
    preferred: tuple[int, float] | None = None
    """A follower that the leader wants to be read instead of it, and until when (KIP-392)."""
    moves: int = 0
    """Another number whenever it is sought, reset, assigned or given up: what was asked for before is stale. No two
    positions of a consumer ever have the same."""
    ranges: tuple[OffsetSpan, ...] | None = None
    """What is read, ascending, and nothing between; None: everything, without an end."""
    processed: OffsetSpan | None = None
    """From the lowest offset that the application has been given to behind the highest."""

    def was_processed(self, span: OffsetSpan | None) -> None:
        """The application has been given this as well."""
        if span is not None:
            before = span if self.processed is None else self.processed
            self.processed = OffsetSpan(min(before.start, span.start), max(before.end, span.end))

    @property
    def has_unread(self) -> bool:
        """Whether something was fetched that the application has not been given."""
        return self.offset is not None and self.offset < self.fetched_to

    @property
    def until(self) -> int | None:
        """The end of the range that is read at `fetch_from`; None where there is no end."""
        return next((each.end for each in self.ranges or () if self.fetch_from < each.end), None)

    @property
    def is_returnable(self) -> bool:
        """Whether the application may get what waits in the buffer."""
        return self.offset is not None and not self.paused and not self.held_back


class Positions:
    """Of one consumer. Changed by the network side only; the application side reads."""

    def __init__(self) -> None:
        self._of: dict[TopicPartition, Position] = {}
        self._moves = count(1)

    def __contains__(self, partition: object) -> bool:
        return partition in self._of

    def __getitem__(self, partition: TopicPartition) -> Position:
        return self._of[partition]

    @property
    def assigned(self) -> Partitions:
        """All, also those that are paused or to be revoked."""
        return frozenset(self._of)

    def get(self, partition: TopicPartition) -> Position | None:
        """None: it is not assigned."""
        return self._of.get(partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these; what stays keeps its position and whether it is paused."""
        before, wanted = self._of, sorted(partitions)
        self.drop(before.keys() - set(wanted))
        self._of = {each: before.get(each) or Position(moves=next(self._moves)) for each in wanted}

    def include(self, partitions: Iterable[TopicPartition]) -> None:
        """These as well."""
        self.assign({*self._of, *partitions})

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more."""
        for each in partitions:
            position = self._of.pop(each, None)
            if position is not None:
                position.moves = next(self._moves)

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """These are to be revoked."""
        for each in self._known(partitions):
            each.held_back = True

    def let_go_on(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not to be revoked any more."""
        for each in self._known(partitions):
            each.held_back = False

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """The application wants no more of these for now."""
        for each in self._known(partitions):
            each.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """The application wants them again."""
        for each in self._known(partitions):
            each.paused = False

    def seek(
        self,
        partition: TopicPartition,
        offset: int,
        record_epoch: int = NO_EPOCH,
        ranges: tuple[OffsetSpan, ...] | None = None,
    ) -> None:
        """Go on from there; what waits in the buffer is stale. A partition that is not assigned is left alone."""
        position = self._of.get(partition)
        if position is not None:
            position.state = PositionState.FETCHING
            position.offset, position.ranges = offset, ranges
            self.fetched(partition, offset, record_epoch)
            position.asking, position.problem = False, None
            position.moves = next(self._moves)

    def log_was_cut(self, partition: TopicPartition, end_offset: int, epoch: int) -> None:
        """Go on where the log ends in an epoch, or where the application is, if that is before (KIP-320, KIP-595)."""
        position = self._of[partition]
        offset = end_offset if position.offset is None else min(end_offset, position.offset)
        self.seek(partition, offset, epoch if offset == end_offset else NO_EPOCH, position.ranges)

    def fetched(self, partition: TopicPartition, next_offset: int, record_epoch: int) -> None:
        """Go on fetching there, or where the next range begins, behind records of another epoch perhaps."""
        position = self._of[partition]
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
        """The reset policy says where it goes on."""
        position = self._of.get(partition)
        if position is not None:
            position.state = PositionState.RESETTING
            position.offset = None
            position.asking = False
            position.moves = next(self._moves)

    def consumed(self, partition: TopicPartition, next_offset: int) -> None:
        """The application has got everything below."""
        position = self._of.get(partition)
        if position is not None:
            if position.offset is not None and position.offset < next_offset:
                position.was_processed(OffsetSpan(position.offset, next_offset))
            position.offset = next_offset

    def retry(self) -> None:
        """What has no offset may have one by now."""
        for position in self._of.values():
            if position.problem is not None:
                position.asking, position.problem = False, None

    def missing(self, state: PositionState) -> list[TopicPartition]:
        """Partitions in a state about which nobody has asked yet."""
        return [each for each, position in self._of.items() if position.state is state and not position.asking]

    def fetchable(self) -> list[TopicPartition]:
        """Those that are to be read, ascending."""
        return [
            each
            for each, position in self._of.items()
            if position.state is PositionState.FETCHING and not position.paused and not position.held_back
        ]

    def _known(self, partitions: Iterable[TopicPartition]) -> list[Position]:
        return [self._of[each] for each in partitions if each in self._of]
