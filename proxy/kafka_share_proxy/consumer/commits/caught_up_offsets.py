"""Committed offset and metadata of a partition that two flows read.

Both flows are stored in one commit, which is atomic (consumer/README.md rules 36 to 38).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_share_proxy.consumer.partitions import Flow, OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import write_commit_text
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX, OffsetLedger
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan


@dataclass(slots=True)
class CaughtUpOffsets:
    """Offsets of one partition that two flows read."""

    processed_to: int
    """Offset below which everything is processed."""
    done: OffsetRanges
    """Ranges processed above `processed_to` when the child was started or cut."""
    child_ranges: tuple[OffsetSpan, ...]
    """Ranges that the child reads, ascending."""
    main_from: int
    """Offset at which the main flow began."""
    user_text: str | None = None
    committed: dict[Flow, int] = field(default_factory=dict)
    """Next offset of each flow, as last committed by the application."""

    def __post_init__(self) -> None:
        self.committed = {Flow.MAIN: self.main_from, Flow.CHILD: self.processed_to}

    @property
    def is_finished(self) -> bool:
        return not self.remaining(self.committed[Flow.CHILD])

    def remaining(self, child: int) -> tuple[OffsetSpan, ...]:
        """Return the parts of the ranges that a child at this position has not read."""
        return tuple(OffsetSpan(max(child, each.start), each.end) for each in self.child_ranges if child < each.end)

    def flow_of(self, offset: int, child: int) -> Flow:
        """Return the flow that an offset of the application belongs to (consumer/README.md rule 38)."""
        end = self.child_ranges[-1].end if self.child_ranges else self.processed_to
        return Flow.CHILD if offset < end or (offset == end <= child) else Flow.MAIN

    def commit(self, offset: int, flow: Flow) -> OffsetAndMetadata:
        """Return the commit after the application has committed an offset of a flow."""
        if offset < self.processed_to:
            return OffsetAndMetadata(offset, self.user_text or "")  # the application wants to read again
        self.committed[flow] = offset
        return self.to_commit()

    def to_commit(self) -> OffsetAndMetadata:
        """Return the one commit that stores the progress of both flows."""
        child, main = self.committed[Flow.CHILD], self.committed[Flow.MAIN]
        done = self.done.copy()
        if main > self.main_from:
            done.merge(self.main_from, main)
        for each in self.child_ranges:
            if child > each.start:
                done.merge(each.start, min(child, each.end))
        remaining = self.remaining(child)
        processed_to = done.absorb(self.processed_to)[0]
        return OffsetAndMetadata(processed_to, _text(processed_to, done, remaining, self.user_text))

    def cut(self, end: int) -> None:
        """End the child's ranges and `done` at `end`."""
        before = (OffsetSpan(each.start, min(each.end, end)) for each in self.child_ranges if each.start < end)
        self.child_ranges = tuple(before)
        self.done = OffsetRanges((each.start, min(each.end, end)) for each in self.done if each.start < end)
        self.processed_to = min(self.processed_to, end)
        self.main_from = end
        self.committed = {Flow.MAIN: end, Flow.CHILD: min(self.committed[Flow.CHILD], end)}


def _text(processed_to: int, done: OffsetRanges, remaining: tuple[OffsetSpan, ...], user_text: str | None) -> str:
    """Write the text. Records of omitted ranges are delivered again."""
    if not remaining and not done:
        return user_text or ""
    shown = remaining if len(write_commit_text((), remaining, user_text)) <= BROKER_METADATA_MAX else ()
    if len(write_commit_text((), shown, user_text)) > BROKER_METADATA_MAX:
        user_text = None
    ledger = OffsetLedger(processed_to, done)
    ledger.catch_up, ledger.user_text = shown, user_text
    return ledger.text(BROKER_METADATA_MAX)
