"""A second flow that reads what lies behind, while the main one reads the newest records (KIP-333).

Theory of operation. A partition that begins behind the end of its log goes on there. What is not done before it are
ranges that the child reads: with positions, requests and a buffer of its own, on a connection of its own. It has no
other member, generation or task. Rules: consumer/README.md 36-41.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from proxy.consumer.caught_up_offsets import CaughtUpOffsets
from proxy.consumer.events import BackgroundEvent, CatchUpChanged, ConsumerError
from proxy.consumer.fetch_requests import FetchRequests
from proxy.consumer.metadata_requests import MetadataRequests
from proxy.consumer.offset_requests import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Found, OffsetRequests
from proxy.consumer.options import ConsumerOptions
from proxy.consumer.partitions import Flow, OffsetAndMetadata
from proxy.consumer.positions import Positions
from proxy.consumer.requests import RetryBackoff
from proxy.offsets.commit_text import CommitText, commit_text_version
from proxy.offsets.ranges import OffsetSpan
from proxy.wire.values import TopicPartition


class CatchUp:
    """The child of one consumer; it does nothing until a partition lies behind."""

    def __init__(
        self,
        options: ConsumerOptions,
        metadata: MetadataRequests,
        main: Positions,
        offsets: OffsetRequests,
        new_backoff: Callable[[], RetryBackoff],
        tell: Callable[[BackgroundEvent], None],
    ) -> None:
        self._metadata = metadata
        self._main = main
        self._offsets = offsets
        self._tell = tell
        self.positions = Positions()
        share = replace(options, buffer_bytes_max=max(1, options.buffer_bytes_max // 2))
        self.fetches = FetchRequests(share, metadata, self.positions, self, new_backoff, Flow.CHILD)
        self.is_alive = False
        """Whether it was ever started: it stays for what comes to lie behind later."""
        self._of: dict[TopicPartition, CaughtUpOffsets] = {}
        self._moves: dict[TopicPartition, int] = {}
        """Of the main position, when it was last looked at."""

    # Begin and end

    def start(
        self, partition: TopicPartition, committed: OffsetAndMetadata, text: CommitText, end: int, end_epoch: int
    ) -> bool:
        """Have the main flow go on at the end of the log. Returns: False, and does nothing, where nothing is behind."""
        done = text.ranges.copy()
        mark = done.absorb(committed.offset)[0]
        behind = tuple(done.gaps(mark, end))
        if not behind:
            return False
        of = CaughtUpOffsets(mark, done, behind, end, text.user_text)
        of.cut(end)
        self._of[partition] = of
        self._main.seek(partition, end, end_epoch)
        self._main[partition].leader = self._metadata.leader(partition)  # which has just said where its log ends
        self._moves[partition] = self._main[partition].moves
        self.positions.include([partition])
        self.positions.seek(partition, mark, committed.leader_epoch, behind)
        self.is_alive = True
        for each in behind:
            self._changed(partition, each, each.end - each.start, "lies behind")
        return True

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more, or their child has come to its end."""
        gone = frozenset(partitions)
        for each in gone:
            main, child = self._main.get(each), self.positions.get(each)
            if main is not None and child is not None:
                main.was_processed(child.processed)
            self._of.pop(each, None)
            self._moves.pop(each, None)
        self.positions.drop(gone)
        self.fetches.drop(gone)

    def clear(self) -> None:
        """Another subscription."""
        self.drop(list(self._of))
        self.fetches.clear()

    def keep_up(self) -> None:
        """Follow the main flow: it is paused, moved to another leader, or goes on elsewhere."""
        for each in list(self._of):
            main, child = self._main.get(each), self.positions.get(each)
            if main is None or child is None:
                self.drop([each])
                continue
            child.paused, child.held_back = main.paused, main.held_back
            child.leader = self._metadata.leader(each)
            if main.moves != self._moves[each] and main.offset is not None:
                self._moves[each] = main.moves
                self._cut(each, main.offset, "the main flow went on before it")

    # What is read

    def consumed(self, partition: TopicPartition, next_offset: int) -> None:
        """The application has been given every record of the child below."""
        child, of = self.positions.get(partition), self._of.get(partition)
        if child is None or of is None:
            return
        before = child.offset if child.offset is not None else next_offset
        self.positions.consumed(partition, next_offset)
        for each in of.behind:
            if before < each.end <= next_offset:
                self._changed(partition, each, 0, "read to its end")

    def read_again(self, partition: TopicPartition) -> None:
        """What the child fetched and the application was not given."""
        if partition in self._of:
            child = self.positions[partition]
            self.positions.seek(partition, self._child(partition), ranges=child.ranges)

    def remaining(self) -> dict[TopicPartition, tuple[OffsetSpan, ...]]:
        """What the application has not been given yet of what lies behind."""
        return {each: left for each, of in self._of.items() if (left := of.left(self._child(each)))}

    def reset(self, partitions: Iterable[TopicPartition], _: str) -> list[BackgroundEvent]:
        """The log does not have an offset of a range: it was deleted from its begin, or cut at its end.

        The range shrinks; the child never goes where the reset policy says.
        """
        for each in partitions:
            at = self.positions[each].fetch_from
            self.positions.reset(each)
            self._offsets.ask({each: EARLIEST_TIMESTAMP}, partial(self._begun, each, at, self.positions[each].moves))
        return []

    def _begun(
        self, partition: TopicPartition, at: int, moves: int, found: Found | ConsumerError
    ) -> list[BackgroundEvent]:
        if partition not in self.positions or self.positions[partition].moves != moves:
            return []
        if isinstance(found, ConsumerError):
            self.positions.seek(partition, at, ranges=self._of[partition].behind)
        elif found[partition].offset > at:
            self._deleted_below(partition, at, found[partition].offset)
        else:
            self._offsets.ask({partition: LATEST_TIMESTAMP}, partial(self._ended, partition, at, moves))
        return []

    def _deleted_below(self, partition: TopicPartition, at: int, start: int) -> None:
        of = self._of[partition]
        for each in of.left(at):
            gone = OffsetSpan(each.start, min(each.end, start)) if each.start < start else None
            if gone is not None:
                self._changed(partition, gone, 0, f"deleted before it was read: the log begins at {start}")
        self.positions.seek(partition, max(at, start), ranges=of.behind)

    def _ended(
        self, partition: TopicPartition, at: int, moves: int, found: Found | ConsumerError
    ) -> list[BackgroundEvent]:
        if partition in self.positions and self.positions[partition].moves == moves:
            ranges = self._of[partition].behind
            self.positions.seek(partition, at, ranges=ranges)
            if not isinstance(found, ConsumerError):
                self._cut(partition, found[partition].offset, "the log was cut before its end")
        return []

    def _cut(self, partition: TopicPartition, end: int, reason: str) -> None:
        """Nothing from there on is the child's: it is gone, or the main flow reads it."""
        of = self._of[partition]
        if end >= of.main_from:
            return
        for each in of.left(end):
            self._changed(partition, each, 0, reason)
        child = self._child(partition)
        of.cut(end)
        self.positions.seek(partition, min(child, end), ranges=of.behind)

    def _child(self, partition: TopicPartition) -> int:
        """The next offset of the child that the application gets."""
        position = self.positions[partition]
        return position.offset if position.offset is not None else position.fetch_from

    # What is committed

    def __contains__(self, partition: object) -> bool:
        return partition in self._of

    def consumed_offset(self, partition: TopicPartition, main: int) -> OffsetAndMetadata:
        """What to commit when both flows are done with what they have returned."""
        of = self._of[partition]
        of.committed = {Flow.MAIN: max(main, of.main_from), Flow.CHILD: self._child(partition)}
        return self._ending(partition, of.now())

    def split(self, partition: TopicPartition, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """What to commit when the application commits an offset: it belongs to one of the flows."""
        of = self._of.get(partition)
        if of is None or commit_text_version(offset.metadata) is not None:
            return offset
        of.user_text = offset.metadata or of.user_text
        flow = of.flow_of(offset.offset, self._child(partition))
        if flow is Flow.CHILD and offset.offset > self._child(partition):
            self.positions.seek(partition, offset.offset, ranges=of.behind)  # done without having been returned
        return self._ending(partition, of.commit(offset.offset, flow))

    def _ending(self, partition: TopicPartition, committed: OffsetAndMetadata) -> OffsetAndMetadata:
        if self._of[partition].is_finished:
            self.drop([partition])
        return committed

    def _changed(self, partition: TopicPartition, token: OffsetSpan, remaining: int, reason: str) -> None:
        self._tell(CatchUpChanged(partition=partition, token=token, remaining=remaining, reason=reason))
