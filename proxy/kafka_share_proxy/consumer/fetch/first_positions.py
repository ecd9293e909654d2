"""Start positions of newly assigned partitions (SubscriptionState, consumer/README.md rules 29 and 36)."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_share_proxy.consumer.commits.committed_requests import Committed
from kafka_share_proxy.consumer.commits.slot_commits import SlotCommits
from kafka_share_proxy.consumer.events import BackgroundError, BackgroundEvent, ConsumerError, PositionFound
from kafka_share_proxy.consumer.fetch.catch_up import CatchUp
from kafka_share_proxy.consumer.fetch.offset_requests import LATEST_TIMESTAMP, Found, OffsetRequests
from kafka_share_proxy.consumer.fetch.positions import Positions, PositionState
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import CommitText, CommitTextError, commit_text_version, parse_commit_text
from kafka_share_proxy.offsets.ranges import OFFSET_MAX
from kafka_share_proxy.wire.values import TopicPartition

Moves = dict[TopicPartition, int]


class FirstPositions:
    """Lookup of start positions: the committed offset, or else the reset policy."""

    def __init__(
        self,
        options: ConsumerOptions,
        positions: Positions,
        committed: SlotCommits,
        offsets: OffsetRequests,
        catch_up: CatchUp,
    ) -> None:
        self._options = options
        self._positions = positions
        self._committed = committed
        self._offsets = offsets
        self._catch_up = catch_up

    def find(self) -> list[BackgroundEvent]:
        """Start the lookup for new partitions."""
        missing = [
            each
            for each in self._positions.missing(PositionState.INITIALIZING)
            if not self._positions[each].held_back and self._committed.is_settled((each,))
        ]
        if not missing:
            return []
        for each in missing:
            self._positions[each].is_queried = True
        if self._options.group_id is None:
            return self._offsets.reset(missing)
        moves = {each: self._positions[each].moves for each in missing}
        self._committed.query(
            frozenset(missing), lambda committed_offsets: self._on_committed(committed_offsets, moves)
        )
        return []

    def _unmoved(self, moves: Moves) -> list[TopicPartition]:
        return [
            each
            for each, before in moves.items()
            if (now := self._positions.get(each)) is not None and now.moves == before and now.is_queried
        ]

    def _on_committed(self, committed_offsets: Committed | ConsumerError, moves: Moves) -> list[BackgroundEvent]:
        still = self._unmoved(moves)
        if isinstance(committed_offsets, ConsumerError):
            return self._not_found(still, committed_offsets)
        events: list[BackgroundEvent] = self._offsets.reset([each for each in still if committed_offsets[each] is None])
        known = {each: offset for each in still if (offset := committed_offsets[each]) is not None}
        if not self._options.enable_parallel_rebalance:
            return [*events, *self._start_at_committed(known)]
        if known:
            latest = dict.fromkeys(known, LATEST_TIMESTAMP)
            self._offsets.query(latest, lambda ends: self._start_at_log_end(known, ends, moves))
        return events

    def _not_found(self, partitions: Iterable[TopicPartition], error: ConsumerError) -> list[BackgroundEvent]:
        listed = frozenset(partitions)
        for each in listed:
            self._positions[each].is_queried = False
        return [BackgroundError(error=error, partitions=listed)]

    def _start_at_committed(self, known: dict[TopicPartition, OffsetAndMetadata]) -> list[BackgroundEvent]:
        """Skip records above the committed offset that are already processed."""
        events: list[BackgroundEvent] = []
        for each, committed in known.items():
            text, problem = _read(committed.metadata)
            done = text.ranges.copy()
            start = done.absorb(committed.offset)[0]
            ranges = tuple(done.gaps(start, OFFSET_MAX)) if done else None
            self._positions.seek(each, start, committed.leader_epoch, ranges)
            events.append(PositionFound(partition=each, committed=committed))
            if problem is not None and self._options.enable_parallel_rebalance:
                events.append(BackgroundError(error=ConsumerError(f"{each}: {problem}"), partitions=frozenset({each})))
        return events

    def _start_at_log_end(
        self, known: dict[TopicPartition, OffsetAndMetadata], ends: Found | ConsumerError, moves: Moves
    ) -> list[BackgroundEvent]:
        """Start at the log end if the lag is at least `catch_up_lag_min`."""
        still = self._unmoved({each: moves[each] for each in known})
        if isinstance(ends, ConsumerError):
            return self._not_found(still, ends)
        events: list[BackgroundEvent] = []
        for each in still:
            committed, end = known[each], ends[each]
            text, problem = _read(committed.metadata)
            lag = end.offset - committed.offset
            if (
                problem is None
                and lag >= self._options.catch_up_lag_min
                and self._catch_up.start(each, committed, text, end.offset, end.leader_epoch)
            ):
                events.append(PositionFound(partition=each, committed=committed, main_from=end.offset))
            else:
                events += self._start_at_committed({each: committed})
        return events


def _read(metadata: str) -> tuple[CommitText, CommitTextError | None]:
    """Parse metadata. Other text yields no ranges, and invalid ranges yield the error."""
    if commit_text_version(metadata) is None:
        return CommitText(user_text=metadata or None), None
    try:
        return parse_commit_text(metadata), None
    except CommitTextError as error:
        return CommitText(), error
