"""How one commit of many ranges is sent: in one text, in several, or as much as fits (consumer/README.md rule 46)."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_share_proxy.consumer.partitions import OffsetAndMetadata
from kafka_share_proxy.offsets.commit_text import (
    PREFIX,
    CommitText,
    CommitTextError,
    fit_commit_text,
    parse_commit_text,
    split_commit_text,
    write_commit_text,
)
from kafka_share_proxy.offsets.ledger import BROKER_METADATA_MAX, OUTSTANDING_MAX
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan

STRING_MAX = 32_767


class CommitTexts:
    """Texts of one commit, in the order in which they are sent."""

    def __init__(self, target: OffsetAndMetadata, *, is_limited: bool) -> None:
        """Begin with the ranges that fit if the coordinator has refused a long text before (`is_limited`).

        Raises ValueError if the ranges of a second flow alone are too long.
        """
        self.target = target
        self.left_out: Sequence[OffsetSpan] = ()
        self._text: CommitText | None = None
        """Parsed if it is above a broker's default limit."""
        self._pieces = [target.metadata]
        self._next = 0
        self._level = 0
        """Number of times that the text was shortened."""
        if len(target.metadata) > BROKER_METADATA_MAX and target.metadata.startswith(PREFIX):
            self._read()
            if is_limited:
                self.shorten()

    def _read(self) -> None:
        try:
            self._text = parse_commit_text(self.target.metadata, OUTSTANDING_MAX)
        except CommitTextError:
            return  # the coordinator decides
        self._pieces = split_commit_text(self._text, STRING_MAX)

    @property
    def current(self) -> str:
        return self._pieces[self._next]

    @property
    def needs_check(self) -> bool:
        """True if the text is sent in parts: a broker without the proxy keeps only the last one."""
        return len(self._pieces) > 1

    def advance(self) -> bool:
        """Continue with the next text after one was accepted. Return True if it was the last."""
        self._next += 1
        return self._next >= len(self._pieces)

    def shorten(self) -> bool:
        """Continue with the ranges that fit into a broker's default limit, then with none. Return False after that."""
        if self._text is None or self._level == 2:
            return False
        self._level += 1
        if self._level == 1:
            text, self.left_out = fit_commit_text(self._text, BROKER_METADATA_MAX)
        else:
            text, self.left_out = (
                write_commit_text((), self._text.catch_up, self._text.user_text),
                (*self._text.ranges,),
            )
        self._pieces, self._next = [text], 0
        return True

    def check_stored(self, committed: OffsetAndMetadata | None) -> None:
        """Set `left_out` to the ranges that the coordinator has not stored, after all parts were accepted."""
        if self._text is None:
            return
        stored = _ranges(committed)
        first = next(iter(self._text.ranges))
        if first.start in stored or (committed is not None and first.end <= committed.offset):
            return  # the first text was added to the last; a string holds only the first ranges
        above = committed.offset if committed is not None else 0
        self.left_out = tuple(each for each in self._text.ranges if each.end > above and each.start not in stored)


def _ranges(committed: OffsetAndMetadata | None) -> OffsetRanges:
    try:
        return (
            parse_commit_text(committed.metadata, OUTSTANDING_MAX).ranges if committed is not None else OffsetRanges()
        )
    except CommitTextError:
        return OffsetRanges()
