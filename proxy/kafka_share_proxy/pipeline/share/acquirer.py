"""Batches of a share group: acquired here, read and written by Spark, and acknowledged after that.

See pipeline/README.md rules 44, 47 and 48. The acquirer runs in the job's own process, like `foreachBatch`. The source,
which Spark runs in another process, gets its batches from there (`handover.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan
from kafka_share_proxy.pipeline.kafka.cluster import Deadline
from kafka_share_proxy.pipeline.share.share_locks import AcquiredOffsets, Fetched, count_offsets, subtract
from kafka_share_proxy.pipeline.share.share_member import ShareMember
from kafka_share_proxy.pipeline.share.share_offsets import ShareOffset, Tokens, merge_tokens
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import TopicPartition

TOKENS_MAX = 1_000
"""Maximum number of offset ranges in one batch. Each is a line in Spark's offset log and a separate read."""
ROUNDS_MAX = 1_000
"""Maximum number of fetches for one batch."""
WAIT_S = 0.5
"""Seconds that a fetch waits for records."""
FIRST_S = 5.0
"""Seconds that the first attempt waits: brokers begin with share partitions that are not read yet."""
WRITTEN_MAX = 10_000
"""Maximum number of remembered ranges that were written and not acknowledged. Beyond it, all are forgotten, and written
a second time when they are delivered again.
"""


class NotAcknowledged(ProxyError):
    """The query does not report when a batch is written. The text says what to do."""


class Totals(NamedTuple):
    """Totals over all batches of the stream, in offsets."""

    acknowledged: int = 0
    redelivered: int = 0
    """Offsets that had been written earlier."""
    refused: int = 0


class _AcquiredBatch(NamedTuple):
    offset: ShareOffset
    acquired: list[AcquiredOffsets]


class WrittenOffsets:
    """Offsets that were written and not acknowledged."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[TopicPartition, bytes], OffsetRanges] = {}

    def add(self, partition: TopicPartition, topic_id: bytes, spans: Iterable[OffsetSpan]) -> None:
        self._ranges.setdefault((partition, topic_id), OffsetRanges()).merge_all(spans)
        if sum(map(len, self._ranges.values())) > WRITTEN_MAX:
            self._ranges.clear()

    def parts(self, each: AcquiredOffsets) -> tuple[list[OffsetSpan], list[OffsetSpan]]:
        """Return the ranges that were written, and those that were not.

        A first delivery counts as not written: an administrator has reset the group to read the offsets again.
        """
        known = self._ranges.get((each.partition, each.topic_id))
        if known is None or each.delivery_count < 2:
            return [], [each.span]
        fresh = list(known.gaps(*each.span))
        return subtract([each.span], fresh), fresh

    def forget(self, each: AcquiredOffsets) -> None:
        key = each.partition, each.topic_id
        remaining = subtract(self._ranges.pop(key), [each.span])
        if remaining:
            self._ranges[key] = OffsetRanges(remaining)


class ShareAcquirer:
    """Source of the batches of one stream. Thread-safe."""

    def __init__(self, member: ShareMember, offsets_max: int, timeout_s: float) -> None:
        """`offsets_max`: offsets in one batch. `timeout_s`: time without progress before Unavailable."""
        self.totals = Totals()
        self._member, self._offsets_max, self._timeout_s = member, offsets_max, timeout_s
        self._lock = threading.Lock()
        self._current: _AcquiredBatch | None = None
        """Batch that is acquired and not acknowledged."""
        self._planned: ShareOffset | None = None
        """After a crash, a batch that a previous member had acquired."""
        self._settled = 0
        """Number of the last batch that was written."""
        self._written = WrittenOffsets()
        self._wait_s = FIRST_S

    def acquire(self, after: int) -> ShareOffset | None:
        """Return the batch after number `after`, the same until it is acknowledged. None if no records are available.

        Raises NotAcknowledged if the previous batch was not acknowledged, Unavailable if the nodes returned nothing but
        errors, ProxyError.
        """
        with self._lock:
            open_batch = self._planned or (self._current.offset if self._current else None)
            if open_batch is not None and open_batch.seq <= after:
                raise NotAcknowledged(
                    f"batch {open_batch.seq} of the share group was not acknowledged: write with ShareStream.start(...)"
                )
            if self._current is None:
                try:
                    self._current = self._acquire_batch(after + 1)
                except BaseException:
                    self._member.release_locks()
                    raise
            return self._current.offset if self._current else None

    def planned(self, offset: ShareOffset) -> None:
        """Note that Spark reads this batch now. After a crash it is one that a previous member had acquired."""
        with self._lock:
            if offset.seq > self._settled:
                self._planned = offset

    def settle(self) -> None:
        """Acknowledge the batch that Spark has written.

        Offsets that a previous member had acquired cannot be acknowledged. They are remembered as written.
        """
        with self._lock:
            batch, self._planned = self._planned, None
            if batch is None:  # Spark begins with a batch without records
                return
            self._settled = batch.seq
            held: list[AcquiredOffsets] = []
            if self._current is not None and self._current.offset == batch:
                held, self._current = self._current.acquired, None
            refused = self._member.accept(held)
            self._note_written(batch.tokens, batch, _not_refused(held, refused))
            count = count_offsets(each.span for each in held)
            lost = count_offsets(each.span for each in refused)
            self._count(
                acknowledged=count - lost, refused=count_offsets(span for _, span in batch.tokens) - count + lost
            )

    def _note_written(self, tokens: Tokens, batch: ShareOffset, settled: Iterable[AcquiredOffsets]) -> None:
        settled_spans: dict[TopicPartition, list[OffsetSpan]] = {}
        for each in settled:
            settled_spans.setdefault(each.partition, []).append(each.span)
        for partition, span in tokens:
            remaining = subtract([span], settled_spans.get(partition, ()))
            if remaining:
                self._written.add(partition, batch.ids[partition.topic], remaining)

    def _count(self, acknowledged: int = 0, redelivered: int = 0, refused: int = 0) -> None:
        before = self.totals
        self.totals = Totals(
            before.acknowledged + acknowledged, before.redelivered + redelivered, before.refused + refused
        )

    # Acquiring

    def _acquire_batch(self, seq: int) -> _AcquiredBatch | None:
        acquired: list[AcquiredOffsets] = []
        tokens: Tokens = []
        deadline = Deadline(self._timeout_s)
        empty_at = deadline.now() + self._wait_s
        for _ in range(ROUNDS_MAX):
            count = count_offsets(span for _, span in tokens)
            if count >= self._offsets_max or len(tokens) >= TOKENS_MAX:
                break
            fetched = self._member.fetch(self._offsets_max - count, 0.0 if acquired else WAIT_S)
            if not fetched.acquired:
                if acquired or self._is_empty(fetched, deadline, empty_at):
                    break
                continue
            deadline.restart()
            self._wait_s = WAIT_S
            empty_at = deadline.now() + WAIT_S
            acquired += self._accept_written(fetched.acquired)
            tokens = merge_tokens((each.partition, each.span) for each in acquired)
        if not acquired:
            return None
        return _AcquiredBatch(
            ShareOffset(seq, tokens, {each.partition.topic: each.topic_id for each in acquired}), acquired
        )

    def _is_empty(self, fetched: Fetched, deadline: Deadline, empty_at: float) -> bool:
        """Return True if no records are available, and wait a little otherwise. Raises Unavailable."""
        if fetched.troubles:
            deadline.wait("; ".join(fetched.troubles))
            return False
        remaining = empty_at - deadline.now()
        if remaining <= 0:
            self._wait_s = WAIT_S
            return True
        deadline.sleep(min(remaining, 0.05))  # without partitions, `fetch` returns immediately
        return False

    def _accept_written(self, acquired: Iterable[AcquiredOffsets]) -> list[AcquiredOffsets]:
        """Acknowledge the offsets that were written already. Return the others."""
        fresh, written_before = [], []
        for each in acquired:
            written, remaining = self._written.parts(each)
            written_before += [each._replace(span=span) for span in written]
            fresh += [each._replace(span=span) for span in remaining]
        if written_before:
            done = _not_refused(written_before, self._member.accept(written_before))
            for each in done:
                self._written.forget(each)
            self._count(redelivered=count_offsets(each.span for each in done))
        return fresh


def _not_refused(acquired: Iterable[AcquiredOffsets], refused: Iterable[AcquiredOffsets]) -> list[AcquiredOffsets]:
    refused_spans = {(each.partition, each.span) for each in refused}
    return [each for each in acquired if (each.partition, each.span) not in refused_spans]
