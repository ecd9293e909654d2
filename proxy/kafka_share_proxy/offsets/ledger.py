"""Done records of one partition, as one consumer knows them: delivered in order, done in any order.

    ledger = OffsetLedger.from_committed(offset, metadata)  # as the broker returned them
    if ledger.delivered(record.offset):                     # False: done before the restart, to be skipped
        ...                                                 # process it, then
        ledger.done(record.offset)
    commit(ledger.offset, ledger.text())

Rules: offsets/README.md 13 to 17.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafka_share_proxy.offsets.commit_text import (
    RANGES_MAX,
    CommitText,
    commit_text_version,
    fit_commit_text,
    parse_commit_text,
)
from kafka_share_proxy.offsets.ranges import OffsetRanges, OffsetSpan

OUTSTANDING_MAX = 100_000
"""Default maximum number of records that are delivered and not done (about 20 MiB)."""
BROKER_METADATA_MAX = 4096
"""Maximum size of metadata that a broker accepts by default (offset.metadata.max.bytes), in characters."""


class LedgerSnapshot(NamedTuple):
    """State of a ledger at one moment."""

    offset: int | None
    """Offset to commit: everything below is done. None if nothing was committed or delivered."""
    ranges: tuple[OffsetSpan, ...]
    """Done ranges above `offset`, half open, ascending."""


class OffsetLedger:
    """Delivered and done records of one partition. Not thread-safe (offsets/README.md rule 16)."""

    def __init__(
        self,
        committed: int | None = None,
        ranges: Iterable[tuple[int, int]] = (),
        *,
        outstanding_max: int = OUTSTANDING_MAX,
    ) -> None:
        """Begin at the committed state of the group.

        Args:
            committed: the committed offset. None if nothing is committed: then the ledger begins at the first record.
            ranges: done ranges above it, half open, in any order.
            outstanding_max: maximum number of records that are delivered and not done.

        Raises ValueError for a negative offset or an invalid range.
        """
        if committed is not None and committed < 0:
            raise ValueError(f"offset {committed} is negative: give None where nothing is committed")
        self._done = OffsetRanges(ranges)
        self._outstanding: dict[int, int] = {}
        """First offset that belongs to each record that is delivered and not done."""
        self._outstanding_max = outstanding_max
        self._offset = committed if committed is None else self._done.absorb(committed)[0]
        self._main = LedgerFlow(self, self._offset)
        self.catch_up: tuple[OffsetSpan, ...] = ()
        """Ranges that a second flow is reading (`pr`)."""
        self.user_text: str | None = None
        """The user's own metadata (`u`)."""

    @classmethod
    def from_committed(
        cls,
        offset: int | None,
        metadata: str | None,
        *,
        ranges_max: int = RANGES_MAX,
        outstanding_max: int = OUTSTANDING_MAX,
    ) -> OffsetLedger:
        """Begin with the result of `committed()` of a client.

        Args:
            offset: the committed offset; None or negative if nothing is committed, as clients return it.
            metadata: a text of ranges. Any other text is kept as the user's own.
            ranges_max: maximum number of ranges in the text.
            outstanding_max: maximum number of records that are delivered and not done.

        Raises CommitTextError for an invalid text of ranges.
        """
        committed = None if offset is None or offset < 0 else offset
        if commit_text_version(metadata) is None:
            ledger = cls(committed, outstanding_max=outstanding_max)
            ledger.user_text = metadata or None
            return ledger
        text = parse_commit_text(metadata or "", ranges_max)
        ledger = cls(committed, text.ranges, outstanding_max=outstanding_max)
        ledger.catch_up, ledger.user_text = text.catch_up, text.user_text
        return ledger

    # Deliveries and completions

    def delivered(self, offset: int) -> bool:
        """Add the next delivered record. Return True if it must be processed, False if it was done before.

        Offsets since the previous record belong to this one. Raises ValueError, without any change, if this offset or a
        later one was delivered already, or if too many records are not done.
        """
        return self._main.delivered(offset)

    def position_moved(self, to: int) -> None:
        """Set the position of the consumer: no record before this offset will be delivered any longer.

        Offsets since the last record are done immediately, for example markers at the end of the log. Call this after
        all records of a poll were added. Raises ValueError if the position decreased.
        """
        self._main.position_moved(to)

    def done(self, offset: int) -> None:
        """Report a delivered record as done, in any order. Raises ValueError if it was not delivered or is done."""
        begin = self._outstanding.pop(offset, None)
        if begin is None:
            why = "is done already" if self.is_done(offset) else "was not delivered"
            raise ValueError(f"offset {offset} {why}: say done once for each record that was delivered")
        self._add_done(begin, offset + 1)

    def jump(self, to: int) -> tuple[OffsetSpan, ...]:
        """Continue at a later offset, and leave earlier ones that are not done to other flows (KIP-333).

        Returns the ranges that are left. Call `flow` for each: the committed offset waits for it. Raises ValueError if
        nothing is committed, because the ranges are then unknown, or if the position is beyond this offset already.
        """
        position = self._main.position
        if position is None or to < position:
            raise ValueError(f"offset {to} cannot be jumped to from position {position}: begin a new ledger")
        self._main.position = to
        return tuple(self._done.gaps(max(position, self._offset or 0), to))

    def flow(self, left: OffsetSpan) -> LedgerFlow:
        """Return the flow of a range that `jump` has left. Raises ValueError if the main flow has not passed it."""
        if self._main.position is None or left.end > self._main.position:
            raise ValueError(f"{left} is not after the position {self._main.position}: jump first")
        return LedgerFlow(self, left.start, left.end)

    def _add_delivered(self, offset: int, begin: int) -> bool:
        """Add a delivered record to which the offsets from `begin` on belong. Return True if it must be processed."""
        if self.is_done(offset):
            self._add_done(begin, offset + 1)
            return False
        if offset in self._outstanding:
            raise ValueError(f"offset {offset} was delivered already, by another flow")
        if self.full:
            raise ValueError(
                f"offset {offset} is one too many: {len(self._outstanding)} records are delivered and not done; "
                "pause the partition until some are"
            )
        self._outstanding[offset] = begin
        return True

    def _begin_at(self, offset: int) -> None:
        """Begin at the first delivered offset if nothing was committed."""
        if self._offset is None:
            self._offset = self._done.absorb(offset)[0]

    def _after_done(self, position: int) -> int:
        """Return the next offset from `position` on that is not done."""
        position = max(position, self._offset or 0)
        done_range = self._done.range_at(position)
        return done_range.end if done_range else position

    def _add_done(self, start: int, end: int) -> None:
        """Add done offsets. Those that touch the committed offset move it."""
        if self._offset is not None and start <= self._offset:
            self._offset = self._done.absorb(max(end, self._offset))[0]
        else:
            self._done.merge(start, end)

    # State

    @property
    def offset(self) -> int | None:
        """Offset to commit: everything below is done. None if nothing was committed or delivered."""
        return self._offset

    @property
    def position(self) -> int | None:
        """Offset after the last delivered one. None before the first record if nothing is committed."""
        return self._main.position

    @property
    def next_to_fetch(self) -> int | None:
        """Offset of the next useful fetch: the position, or the end of the done range there."""
        return self._main.next_to_fetch

    @property
    def outstanding(self) -> int:
        """Number of records that are delivered and not done."""
        return len(self._outstanding)

    @property
    def full(self) -> bool:
        """True if no record may be delivered until another one is done."""
        return len(self._outstanding) >= self._outstanding_max

    def is_done(self, offset: int) -> bool:
        """Return True if an offset is done, or belongs to a record that is done."""
        return (self._offset is not None and offset < self._offset) or offset in self._done

    def snapshot(self) -> LedgerSnapshot:
        """Return the current offset to commit and the done ranges above it."""
        return LedgerSnapshot(self._offset, tuple(self._done))

    def text(self, characters_max: int | None = None) -> str:
        """Return the metadata to commit along with `offset`.

        `characters_max` is `BROKER_METADATA_MAX` if brokers store the text directly: only the widest ranges that fit
        are written (offsets/README.md rule 15). None for all ranges. Raises ValueError if even a text without ranges is
        too long.
        """
        text = CommitText(self._done, self.catch_up, self.user_text)
        return str(text) if characters_max is None else fit_commit_text(text, characters_max)[0]


class LedgerFlow:
    """Records of one ledger that are delivered in ascending order, up to an end. Returned by `OffsetLedger.flow`."""

    def __init__(self, ledger: OffsetLedger, position: int | None, end: int | None = None) -> None:
        self._ledger = ledger
        self.position = position
        """Next offset to be delivered."""
        self.end = end
        """End of the range of this flow."""

    def delivered(self, offset: int) -> bool:
        """Add a record as `OffsetLedger.delivered`. Raises ValueError for an offset beyond the end as well."""
        begin = offset if self.position is None else self.position
        if offset < begin or offset < 0:
            raise ValueError(
                f"offset {offset} was delivered after the position reached {begin}: "
                "offsets ascend; after a seek backwards begin a new ledger"
            )
        if self.end is not None and offset >= self.end:
            raise ValueError(f"offset {offset} is after the end of this flow, {self.end}: the main flow has it")
        is_new = self._ledger._add_delivered(offset, begin)
        self.position = offset + 1
        self._ledger._begin_at(offset)
        return is_new

    def position_moved(self, to: int) -> None:
        """Set the position as `OffsetLedger.position_moved` does, limited to the end of the flow."""
        if to < (self.position or 0):
            raise ValueError(
                f"offset {to} is before the position {self.position or 0}: after a seek begin a new ledger"
            )
        to = to if self.end is None else min(to, self.end)
        begin, self.position = self.position, to
        self._ledger._begin_at(to)
        if begin is not None and to > begin:
            self._ledger._add_done(begin, to)

    @property
    def next_to_fetch(self) -> int | None:
        """Offset of the next useful fetch, as in `OffsetLedger.next_to_fetch`. None at the end of the flow."""
        if self.position is None or self.finished:
            return None
        next_offset = self._ledger._after_done(self.position)
        return next_offset if self.end is None or next_offset < self.end else None

    @property
    def finished(self) -> bool:
        """True if everything up to the end was delivered. It may not be done yet."""
        return (
            self.end is not None and self.position is not None and self._ledger._after_done(self.position) >= self.end
        )
