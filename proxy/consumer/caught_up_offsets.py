"""What is committed of a partition that two flows read, and what an offset that the application commits says of it.

Theory of operation. The mark is committed as the offset, so that everybody else begins there and misses nothing. What
the main flow has come to stands above it as a range of `ic/1`, what the child has before it as `pr`. Each flow has an
offset of its own; the two together give one commit, which is atomic (consumer/README.md rules 36-38).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.consumer.partitions import Flow, OffsetAndMetadata
from proxy.offsets.commit_text import write_commit_text
from proxy.offsets.ledger import BROKER_METADATA_MAX, OffsetLedger
from proxy.offsets.ranges import OffsetRanges, OffsetSpan


@dataclass(slots=True)
class CaughtUpOffsets:
    """Of one partition."""

    mark: int
    """Everything below is done."""
    done: OffsetRanges
    """What is done above it, without what the two flows have done since."""
    behind: tuple[OffsetSpan, ...]
    """What the child reads, ascending."""
    main_from: int
    """Where the main flow began."""
    user_text: str | None = None
    committed: dict[Flow, int] = field(default_factory=dict)
    """How far the commits of each flow have come."""

    def __post_init__(self) -> None:
        """Nothing of either flow is done."""
        self.committed = {Flow.MAIN: self.main_from, Flow.CHILD: self.mark}

    @property
    def is_finished(self) -> bool:
        """Whether the child's commits have come to the end."""
        return not self.left(self.committed[Flow.CHILD])

    def left(self, child: int) -> tuple[OffsetSpan, ...]:
        """What the child has before it at an offset."""
        return tuple(OffsetSpan(max(child, each.start), each.end) for each in self.behind if child < each.end)

    def flow_of(self, offset: int, child: int) -> Flow:
        """Which flow a commit of this offset belongs to.

        The end of what the child reads is where the main flow began: it is the child's only once it has come there.
        """
        end = self.behind[-1].end if self.behind else self.mark
        return Flow.CHILD if offset < end or (offset == end <= child) else Flow.MAIN

    def commit(self, offset: int, flow: Flow) -> OffsetAndMetadata:
        """What to commit when a flow has come to an offset; the other one stays where its commits have come."""
        if offset < self.mark:
            return OffsetAndMetadata(offset, self.user_text or "")  # reading again was asked for
        self.committed[flow] = offset
        return self.now()

    def now(self) -> OffsetAndMetadata:
        """What to commit of both flows."""
        child, main = self.committed[Flow.CHILD], self.committed[Flow.MAIN]
        done = self.done.copy()
        if main > self.main_from:
            done.merge(self.main_from, main)
        for each in self.behind:
            if child > each.start:
                done.merge(each.start, min(child, each.end))
        left = self.left(child)
        mark = done.absorb(self.mark)[0]
        return OffsetAndMetadata(mark, _text(mark, done, left, self.user_text))

    def cut(self, end: int) -> None:
        """The main flow goes on at an earlier offset: what lies behind it is read by that flow, done or not."""
        before = (OffsetSpan(each.start, min(each.end, end)) for each in self.behind if each.start < end)
        self.behind = tuple(before)
        self.done = OffsetRanges((each.start, min(each.end, end)) for each in self.done if each.start < end)
        self.mark = min(self.mark, end)
        self.main_from = end
        self.committed = {Flow.MAIN: end, Flow.CHILD: min(self.committed[Flow.CHILD], end)}


def _text(mark: int, done: OffsetRanges, left: tuple[OffsetSpan, ...], user_text: str | None) -> str:
    """As much of it as a broker takes: ranges say what matters, and what is left out comes again."""
    if not left and not done:
        return user_text or ""
    shown = left if len(write_commit_text((), left, user_text)) <= BROKER_METADATA_MAX else ()
    if len(write_commit_text((), shown, user_text)) > BROKER_METADATA_MAX:
        user_text = None
    ledger = OffsetLedger(mark, done)
    ledger.catch_up, ledger.user_text = shown, user_text
    return ledger.text(BROKER_METADATA_MAX)
