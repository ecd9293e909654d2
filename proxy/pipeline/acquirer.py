"""Batches of a share group: acquired, read and written by Spark, and only then acknowledged.

See pipeline/README.md rules 44, 47 and 48.

Lives in the job's own process, where `foreachBatch` runs. The source, which Spark runs in another process, asks it for
batches (`handover.py`). What was written and could not be acknowledged comes again; it is acknowledged then, and not
read again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from proxy.offsets.ranges import OffsetRanges, OffsetSpan
from proxy.pipeline.cluster import Deadline
from proxy.pipeline.share_locks import AcquiredOffsets, Fetched, count_of, without
from proxy.pipeline.share_member import ShareMember
from proxy.pipeline.share_offsets import ShareOffset, Tokens, merged
from proxy.wire.errors import ProxyError
from proxy.wire.values import TopicPartition

TOKENS_MAX = 1_000
"""Ranges of offsets in one batch: each is a line in Spark's offset log, and a read of its own."""
ROUNDS_MAX = 1_000
"""Fetches for one batch, and for one look that finds nothing."""
WAIT_S = 0.5
"""How long one look waits for records."""
FIRST_S = 5.0
"""How long the first one does: brokers begin with share partitions that are not read yet."""
WRITTEN_MAX = 10_000
"""Ranges that were written and not acknowledged; with more, all are forgotten, and are written again when they come."""


class NotAcknowledged(ProxyError):
    """The query does not say when a batch is written; the text says what to do."""


class Totals(NamedTuple):
    """Of all batches so far, in offsets unless said otherwise."""

    acknowledged: int = 0
    came_again: int = 0
    """Written earlier, and acknowledged when they came again."""
    refused: int = 0
    """Written, and not acknowledged: their locks had ended."""


class _Given(NamedTuple):
    """A batch that was handed out."""

    offset: ShareOffset
    acquired: list[AcquiredOffsets]


class WrittenOffsets:
    """What was written and not acknowledged."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[TopicPartition, bytes], OffsetRanges] = {}

    def add(self, place: TopicPartition, topic_id: bytes, spans: Iterable[OffsetSpan]) -> None:
        """These were written."""
        self._ranges.setdefault((place, topic_id), OffsetRanges()).merge_all(spans)
        if sum(map(len, self._ranges.values())) > WRITTEN_MAX:
            self._ranges.clear()

    def parts(self, each: AcquiredOffsets) -> tuple[list[OffsetSpan], list[OffsetSpan]]:
        """Of offsets that were acquired: those that are written, and those that are not.

        A first delivery was never written: an administrator has set the group back, and wants it again.
        """
        known = self._ranges.get((each.place, each.topic_id))
        if known is None or each.delivery_count < 2:
            return [], [each.span]
        fresh = list(known.gaps(*each.span))
        return without([each.span], fresh), fresh

    def forget(self, each: AcquiredOffsets) -> None:
        """These are acknowledged."""
        key = each.place, each.topic_id
        left = without(self._ranges.pop(key), [each.span])
        if left:
            self._ranges[key] = OffsetRanges(left)


class ShareAcquirer:
    """Of one stream; for several threads."""

    def __init__(self, member: ShareMember, most: int, timeout_s: float) -> None:
        """Take a member that has joined.

        Args:
            member: of the share group.
            most: offsets of one batch.
            timeout_s: how long no node may answer.
        """
        self.totals = Totals()
        self._member, self._most, self._timeout_s = member, most, timeout_s
        self._turn = threading.Lock()
        self._given: _Given | None = None
        """Held, and not acknowledged."""
        self._planned: ShareOffset | None = None
        """What Spark works on; after a crash, what a member that is gone had acquired."""
        self._settled = 0
        """Number of the last batch that was written."""
        self._written = WrittenOffsets()
        self._wait_s = FIRST_S

    def acquire(self, after: int) -> ShareOffset | None:
        """The next batch, the same as long as it is not acknowledged; None: there is nothing now.

        Args:
            after: number of the batch before it.

        Raises:
            NotAcknowledged, Unavailable. ProxyError: as its text says.
        """
        with self._turn:
            open_batch = self._planned or (self._given.offset if self._given else None)
            if open_batch is not None and open_batch.seq <= after:
                raise NotAcknowledged(
                    f"batch {open_batch.seq} of the share group was not acknowledged: write with ShareStream.start(...)"
                )
            if self._given is None:
                try:
                    self._given = self._acquired(after + 1)
                except BaseException:
                    self._member.give_back()
                    raise
            return self._given.offset if self._given else None

    def planned(self, offset: ShareOffset) -> None:
        """Spark reads this batch now; it may say so again when it is written."""
        with self._turn:
            if offset.seq > self._settled:
                self._planned = offset

    def settle(self) -> None:
        """What Spark read is written: acknowledge it. What a member that is gone had acquired cannot be."""
        with self._turn:
            batch, self._planned = self._planned, None
            if batch is None:  # without records: Spark begins with one
                return
            self._settled = batch.seq
            held: list[AcquiredOffsets] = []
            if self._given is not None and self._given.offset == batch:
                held, self._given = self._given.acquired, None
            refused = self._member.accept(held)
            self._note_written(batch.tokens, batch, _less(held, refused))
            count = count_of(each.span for each in held)
            lost = count_of(each.span for each in refused)
            self._count(acknowledged=count - lost, refused=count_of(span for _, span in batch.tokens) - count + lost)

    def _note_written(self, tokens: Tokens, batch: ShareOffset, settled: Iterable[AcquiredOffsets]) -> None:
        """Remember what was written and is not settled."""
        gone: dict[TopicPartition, list[OffsetSpan]] = {}
        for each in settled:
            gone.setdefault(each.place, []).append(each.span)
        for place, span in tokens:
            left = without([span], gone.get(place, ()))
            if left:
                self._written.add(place, batch.ids[place.topic], left)

    def _count(self, acknowledged: int = 0, came_again: int = 0, refused: int = 0) -> None:
        before = self.totals
        self.totals = Totals(
            before.acknowledged + acknowledged, before.came_again + came_again, before.refused + refused
        )

    # Acquiring

    def _acquired(self, seq: int) -> _Given | None:
        found: list[AcquiredOffsets] = []
        tokens: Tokens = []
        deadline = Deadline(self._timeout_s)
        looked_until = deadline.now() + self._wait_s
        for _ in range(ROUNDS_MAX):
            count = count_of(span for _, span in tokens)
            if count >= self._most or len(tokens) >= TOKENS_MAX:
                break
            fetched = self._member.fetch(self._most - count, 0.0 if found else WAIT_S)
            if not fetched.acquired:
                if found or self._is_empty(fetched, deadline, looked_until):
                    break
                continue
            deadline.progressed()
            self._wait_s = WAIT_S
            looked_until = deadline.now() + WAIT_S
            found += self._fresh(fetched.acquired)
            tokens = merged((each.place, each.span) for each in found)
        if not found:
            return None
        return _Given(ShareOffset(seq, tokens, {each.place.topic: each.topic_id for each in found}), found)

    def _is_empty(self, fetched: Fetched, deadline: Deadline, looked_until: float) -> bool:
        """Whether a look that brought nothing says that there is nothing. Raises Unavailable."""
        if fetched.troubles:
            deadline.wait("; ".join(fetched.troubles))
            return False
        left = looked_until - deadline.now()
        if left <= 0:
            self._wait_s = WAIT_S
            return True
        deadline.sleep(min(left, 0.05))  # without partitions nobody waits
        return False

    def _fresh(self, acquired: Iterable[AcquiredOffsets]) -> list[AcquiredOffsets]:
        """What is to be read; what was written already is acknowledged at once."""
        fresh, again = [], []
        for each in acquired:
            written, left = self._written.parts(each)
            again += [each._replace(span=span) for span in written]
            fresh += [each._replace(span=span) for span in left]
        if again:
            done = _less(again, self._member.accept(again))
            for each in done:
                self._written.forget(each)
            self._count(came_again=count_of(each.span for each in done))
        return fresh


def _less(all_of_them: Iterable[AcquiredOffsets], refused: Iterable[AcquiredOffsets]) -> list[AcquiredOffsets]:
    gone = {(each.place, each.span) for each in refused}
    return [each for each in all_of_them if (each.place, each.span) not in gone]
