"""A second flow that reads older records while the main flow reads the newest ones (KIP-333).

Rules: consumer/README.md 36 to 41.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from kafka_share_proxy.consumer.commits.caught_up_offsets import CaughtUpOffsets
from kafka_share_proxy.consumer.events import BackgroundEvent, CatchUpChanged, ConsumerError
from kafka_share_proxy.consumer.fetch.fetch_requests import FetchRequests
from kafka_share_proxy.consumer.fetch.offset_requests import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Found, OffsetRequests
from kafka_share_proxy.consumer.fetch.positions import Positions
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
from kafka_share_proxy.consumer.requests import RetryBackoff
from kafka_share_proxy.offsets.commit_text import CommitText, commit_text_version
from kafka_share_proxy.offsets.ranges import OffsetSpan
from kafka_share_proxy.wire.values import TopicPartition


class CatchUp:
    """The second flow ("child") of one consumer."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: MetadataRequests,
        main: Positions,
        offsets: OffsetRequests,
        new_backoff: Callable[[], RetryBackoff],
        report: Callable[[BackgroundEvent], None],
    ) -> None:
        self._metadata = metadata
        self._main = main
        self._offsets = offsets
        self._report = report
        self.positions = Positions()
        share = replace(options, buffer_bytes_max=max(1, options.buffer_bytes_max // 2))
        self.fetches = FetchRequests(share, metadata, self.positions, self, new_backoff, Flow.CHILD)
        self.is_alive = False
        """True from the first start on."""
        self._caught_up: dict[TopicPartition, CaughtUpOffsets] = {}
        self._moves: dict[TopicPartition, int] = {}
        """Value of `moves` of the main position when the child last followed it."""

    # Start and stop

    def start(
        self, partition: TopicPartition, committed: OffsetAndMetadata, text: CommitText, end: int, end_epoch: int
    ) -> bool:
        """Start the child on the unprocessed ranges. Return False, with nothing changed, if there are none."""
        done = text.ranges.copy()
        processed_to = done.absorb(committed.offset)[0]
        child_ranges = tuple(done.gaps(processed_to, end))
        if not child_ranges:
            return False
        caught_up = CaughtUpOffsets(processed_to, done, child_ranges, end, text.user_text)
        caught_up.cut(end)
        self._caught_up[partition] = caught_up
        self._main.seek(partition, end, end_epoch)
        self._main[partition].leader = self._metadata.leader(partition)  # which returned `end`
        self._moves[partition] = self._main[partition].moves
        self.positions.include([partition])
        self.positions.seek(partition, processed_to, committed.leader_epoch, child_ranges)
        self.is_alive = True
        for each in child_ranges:
            self._report_change(partition, each, each.end - each.start, "not processed")
        return True

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop the child for these partitions."""
        dropped = frozenset(partitions)
        for each in dropped:
            main, child = self._main.get(each), self.positions.get(each)
            if main is not None and child is not None:
                main.add_processed(child.processed)
            self._caught_up.pop(each, None)
            self._moves.pop(each, None)
        self.positions.drop(dropped)
        self.fetches.drop(dropped)

    def clear(self) -> None:
        self.drop(list(self._caught_up))
        self.fetches.clear()

    def follow_main(self) -> None:
        """Copy the pause and leader of the main flow. If that has sought back, the child's ranges end there."""
        for each in list(self._caught_up):
            main, child = self._main.get(each), self.positions.get(each)
            if main is None or child is None:
                self.drop([each])
                continue
            child.paused, child.held_back = main.paused, main.held_back
            child.leader = self._metadata.leader(each)
            if main.moves != self._moves[each] and main.offset is not None:
                self._moves[each] = main.moves
                self._cut(each, main.offset, "the main flow went on before it")

    # Reading

    def consumed(self, partition: TopicPartition, next_offset: int) -> None:
        child, caught_up = self.positions.get(partition), self._caught_up.get(partition)
        if child is None or caught_up is None:
            return
        before = child.offset if child.offset is not None else next_offset
        self.positions.consumed(partition, next_offset)
        for each in caught_up.child_ranges:
            if before < each.end <= next_offset:
                self._report_change(partition, each, 0, "read to its end")

    def read_again(self, partition: TopicPartition) -> None:
        """Fetch again from the child's position: buffered records become stale."""
        if partition in self._caught_up:
            child = self.positions[partition]
            self.positions.seek(partition, self._child_offset(partition), ranges=child.ranges)

    def remaining(self) -> dict[TopicPartition, tuple[OffsetSpan, ...]]:
        return {
            each: remaining
            for each, caught_up in self._caught_up.items()
            if (remaining := caught_up.remaining(self._child_offset(each)))
        }

    def reset(self, partitions: Iterable[TopicPartition], _: str) -> list[BackgroundEvent]:
        """Shrink a range at which the leader returned OFFSET_OUT_OF_RANGE."""
        for each in partitions:
            at = self.positions[each].fetch_from
            self.positions.reset(each)
            self._offsets.query(
                {each: EARLIEST_TIMESTAMP}, partial(self._on_log_start, each, at, self.positions[each].moves)
            )
        return []

    def _on_log_start(
        self, partition: TopicPartition, at: int, moves: int, result: Found | ConsumerError
    ) -> list[BackgroundEvent]:
        if partition not in self.positions or self.positions[partition].moves != moves:
            return []
        if isinstance(result, ConsumerError):
            self.positions.seek(partition, at, ranges=self._caught_up[partition].child_ranges)
        elif result[partition].offset > at:
            self._deleted_below(partition, at, result[partition].offset)
        else:
            self._offsets.query({partition: LATEST_TIMESTAMP}, partial(self._on_log_end, partition, at, moves))
        return []

    def _deleted_below(self, partition: TopicPartition, at: int, start: int) -> None:
        """Continue at the log start: the records from `at` on were deleted."""
        caught_up = self._caught_up[partition]
        for each in caught_up.remaining(at):
            deleted = OffsetSpan(each.start, min(each.end, start)) if each.start < start else None
            if deleted is not None:
                self._report_change(partition, deleted, 0, f"deleted before it was read: the log begins at {start}")
        self.positions.seek(partition, max(at, start), ranges=caught_up.child_ranges)

    def _on_log_end(
        self, partition: TopicPartition, at: int, moves: int, result: Found | ConsumerError
    ) -> list[BackgroundEvent]:
        if partition in self.positions and self.positions[partition].moves == moves:
            ranges = self._caught_up[partition].child_ranges
            self.positions.seek(partition, at, ranges=ranges)
            if not isinstance(result, ConsumerError):
                self._cut(partition, result[partition].offset, "the log was cut before its end")
        return []

    def _cut(self, partition: TopicPartition, end: int, reason: str) -> None:
        caught_up = self._caught_up[partition]
        if end >= caught_up.main_from:
            return
        for each in caught_up.remaining(end):
            self._report_change(partition, each, 0, reason)
        child = self._child_offset(partition)
        caught_up.cut(end)
        self.positions.seek(partition, min(child, end), ranges=caught_up.child_ranges)

    def _child_offset(self, partition: TopicPartition) -> int:
        position = self.positions[partition]
        return position.offset if position.offset is not None else position.fetch_from

    # Commits

    def __contains__(self, partition: object) -> bool:
        return partition in self._caught_up

    def consumed_offset(self, partition: TopicPartition, main: int) -> OffsetAndMetadata:
        caught_up = self._caught_up[partition]
        caught_up.committed = {Flow.MAIN: max(main, caught_up.main_from), Flow.CHILD: self._child_offset(partition)}
        return self._drop_if_finished(partition, caught_up.to_commit())

    def split(self, partition: TopicPartition, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        caught_up = self._caught_up.get(partition)
        if caught_up is None or commit_text_version(offset.metadata) is not None:
            return offset
        caught_up.user_text = offset.metadata or caught_up.user_text
        flow = caught_up.flow_of(offset.offset, self._child_offset(partition))
        if flow is Flow.CHILD and offset.offset > self._child_offset(partition):
            # processed without having been returned
            self.positions.seek(partition, offset.offset, ranges=caught_up.child_ranges)
        return self._drop_if_finished(partition, caught_up.commit(offset.offset, flow))

    def _drop_if_finished(self, partition: TopicPartition, committed: OffsetAndMetadata) -> OffsetAndMetadata:
        if self._caught_up[partition].is_finished:
            self.drop([partition])
        return committed

    def _report_change(self, partition: TopicPartition, token: OffsetSpan, remaining: int, reason: str) -> None:
        self._report(CatchUpChanged(partition=partition, token=token, remaining=remaining, reason=reason))
