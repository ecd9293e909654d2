"""Which records of one partition are done, as one consumer knows it: delivered in order, done in any order.

    ledger = OffsetLedger.from_committed(offset, metadata)  # as the broker gave them back
    if ledger.delivered(record.offset):                     # False: done before the restart, to be skipped
        ...                                                 # process it, then
        ledger.done(record.offset)
    commit(ledger.mark, ledger.text())

Every offset between two delivered records belongs to the later one: transaction markers and what compaction took away
are never delivered, and would hold the mark back for ever (offsets/README.md rule 13).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proxy.offsets.commit_text import RANGES_MAX, commit_text_version, parse_commit_text, write_commit_text
from proxy.offsets.ranges import OffsetRanges, OffsetSpan

OUTSTANDING_MAX = 100_000
"""Records that may be delivered and not done, unless the caller says otherwise (about 20 MiB)."""
BROKER_METADATA_MAX = 4096
"""Characters of metadata that a broker takes by default (offset.metadata.max.bytes)."""


class LedgerSnapshot(NamedTuple):
    """What is done, at one moment."""

    mark: int | None
    """Everything below is done; the offset to commit. None where nothing was committed nor delivered."""
    ranges: tuple[OffsetSpan, ...]
    """What is done above it, half open, ascending."""


class OffsetLedger:
    """What is delivered and done of one partition. One thread at a time may use it (offsets/README.md rule 16)."""

    def __init__(
        self,
        mark: int | None = None,
        ranges: Iterable[tuple[int, int]] = (),
        *,
        outstanding_max: int = OUTSTANDING_MAX,
    ) -> None:
        """Begin where the group stands.

        Args:
            mark: the committed offset; None where nothing is committed, then the first record says where it begins.
            ranges: what is done above it, half open, in any order.
            outstanding_max: records that may be delivered and not done.

        Raises ValueError for a negative mark, or a range that is none.
        """
        if mark is not None and mark < 0:
            raise ValueError(f"mark {mark} is negative: give None where nothing is committed")
        self._done = OffsetRanges(ranges)
        self._outstanding: dict[int, int] = {}
        """Offset of a record that is delivered and not done -> the first offset that belongs to it."""
        self._outstanding_max = outstanding_max
        self._mark = mark if mark is None else self._done.absorb(mark)[0]
        self._main = LedgerFlow(self, self._mark)
        self.catch_up: tuple[OffsetSpan, ...] = ()
        """Ranges that a second flow is reading; the text carries them (`pr`)."""
        self.user_text: str | None = None
        """The user's own metadata; the text carries it (`u`)."""

    @classmethod
    def from_committed(
        cls,
        offset: int | None,
        metadata: str | None,
        *,
        ranges_max: int = RANGES_MAX,
        outstanding_max: int = OUTSTANDING_MAX,
    ) -> OffsetLedger:
        """Begin with what `committed()` of a client gave back.

        Args:
            offset: None or negative where nothing is committed, as clients have it.
            metadata: a text of ranges; any other is the user's own and is kept as such.
            ranges_max: most ranges in the text.
            outstanding_max: records that may be delivered and not done.

        Raises CommitTextError where it is a text of ranges that cannot be read.
        """
        mark = None if offset is None or offset < 0 else offset
        if commit_text_version(metadata) is None:
            ledger = cls(mark, outstanding_max=outstanding_max)
            ledger.user_text = metadata or None
            return ledger
        text = parse_commit_text(metadata or "", ranges_max)
        ledger = cls(mark, text.ranges, outstanding_max=outstanding_max)
        ledger.catch_up, ledger.user_text = text.catch_up, text.user_text
        return ledger

    # What comes in

    def delivered(self, offset: int) -> bool:
        """Note the next record, and tell whether it is to be processed; False says that it was done before.

        Everything between the record before and this one belongs to it, and is done with it. Raises ValueError, and
        notes nothing, if records at or behind that offset were delivered, or if too many are not done yet.
        """
        return self._main.delivered(offset)

    def position_moved(self, to: int) -> None:
        """Note that the consumer has come to an offset, and nothing more is to be delivered before it.

        What is between the last record and there is done at once: markers at the end of the log, for instance. Call
        it with the position of the client after all records of a poll were noted. Raises ValueError if it went back.
        """
        self._main.position_moved(to)

    def done(self, offset: int) -> None:
        """Note that a record is processed, in any order; raises ValueError unless it was delivered and not done."""
        begin = self._outstanding.pop(offset, None)
        if begin is None:
            why = "is done already" if self.is_done(offset) else "was not delivered"
            raise ValueError(f"offset {offset} {why}: say done once for each record that was delivered")
        self._finish(begin, offset + 1)

    def jump(self, to: int) -> tuple[OffsetSpan, ...]:
        """Go on delivering at a later offset, and leave what is not done before it to other flows (KIP-333).

        Gives the ranges that are left, to be followed with `flow` each: the mark waits for them. Raises ValueError if
        nothing is committed, for then nothing says what is left, or if the position has come further already.
        """
        position = self._main.position
        if position is None or to < position:
            raise ValueError(f"offset {to} cannot be jumped to from position {position}: begin a new ledger")
        self._main.position = to
        return tuple(self._done.gaps(max(position, self._mark or 0), to))

    def flow(self, left: OffsetSpan) -> LedgerFlow:
        """Follow a range that a jump has left behind; raises ValueError if the main flow has not passed it."""
        if self._main.position is None or left.end > self._main.position:
            raise ValueError(f"{left} is not behind the position {self._main.position}: jump first")
        return LedgerFlow(self, left.start, left.end)

    def _owned(self, offset: int, begin: int) -> bool:
        """A record is delivered, and owns what is before it; whether it is to be processed."""
        if self.is_done(offset):
            self._finish(begin, offset + 1)
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
        """Where nothing is committed, the first offset that is heard of is where the group begins."""
        if self._mark is None:
            self._mark = self._done.absorb(offset)[0]

    def _after(self, position: int) -> int:
        """The first offset from there on that is not done."""
        position = max(position, self._mark or 0)
        found = self._done.range_at(position)
        return found.end if found else position

    def _finish(self, start: int, end: int) -> None:
        """What begins at the mark moves it, and never becomes a range."""
        if self._mark is not None and start <= self._mark:
            self._mark = self._done.absorb(max(end, self._mark))[0]
        else:
            self._done.merge(start, end)

    # What is known

    @property
    def mark(self) -> int | None:
        """The offset to commit: everything below is done. None where nothing was committed nor delivered."""
        return self._mark

    @property
    def position(self) -> int | None:
        """The offset after the last one delivered; None before the first where nothing is committed."""
        return self._main.position

    @property
    def next_to_fetch(self) -> int | None:
        """Where it is worth reading on: the position, or the end of what is done there."""
        return self._main.next_to_fetch

    @property
    def outstanding(self) -> int:
        """How many records are delivered and not done."""
        return len(self._outstanding)

    @property
    def full(self) -> bool:
        """Whether no record may be delivered until another one is done."""
        return len(self._outstanding) >= self._outstanding_max

    def is_done(self, offset: int) -> bool:
        """Whether an offset is done, or belongs to a record that is."""
        return (self._mark is not None and offset < self._mark) or offset in self._done

    def snapshot(self) -> LedgerSnapshot:
        """The mark and the ranges above it, as they are now."""
        return LedgerSnapshot(self._mark, tuple(self._done))

    def text(self, characters_max: int | None = None) -> str:
        """The metadata to commit along with `mark`.

        Args:
            characters_max: `BROKER_METADATA_MAX` where brokers get the text as it is. The widest ranges that have
                room are written; the records of the others come again after a restart. None: all ranges.

        Raises ValueError if not even a text without ranges has room.
        """
        text = write_commit_text(self._done, self.catch_up, self.user_text)
        if characters_max is None or len(text) <= characters_max:
            return text
        room = characters_max - len(write_commit_text((), self.catch_up, self.user_text))
        if room < 0:
            raise ValueError(f"user_text and catch_up alone are {-room} characters more than the {characters_max}")
        return write_commit_text(self._widest(room), self.catch_up, self.user_text)

    def _widest(self, room: int) -> list[OffsetSpan]:
        """The widest ranges whose text, with commas between, has so many characters at most."""
        kept: list[OffsetSpan] = []
        room += 1  # there is no comma before the first
        for span in sorted(self._done, key=lambda span: span.start - span.end):
            room -= len(str(span)) + 1
            if room < 0:
                break
            kept.append(span)
        return kept


class LedgerFlow:
    """Records of one ledger that are delivered in ascending order, up to an end: what `OffsetLedger.flow` gives."""

    def __init__(self, ledger: OffsetLedger, position: int | None, end: int | None = None) -> None:
        """Made by the ledger; `end` is None for the main flow."""
        self._ledger = ledger
        self.position = position
        """The next offset to be delivered; everything below is delivered, done, or can never be delivered."""
        self.end = end
        """Where the range of this flow ends."""

    def delivered(self, offset: int) -> bool:
        """As `OffsetLedger.delivered`; raises ValueError for an offset behind the end as well."""
        begin = offset if self.position is None else self.position
        if offset < begin or offset < 0:
            raise ValueError(
                f"offset {offset} was delivered after the position came to {begin}: "
                "offsets ascend; after a seek backwards begin a new ledger"
            )
        if self.end is not None and offset >= self.end:
            raise ValueError(f"offset {offset} is behind the end of this flow, {self.end}: the main flow has it")
        wanted = self._ledger._owned(offset, begin)
        self.position = offset + 1
        self._ledger._begin_at(offset)
        return wanted

    def position_moved(self, to: int) -> None:
        """As `OffsetLedger.position_moved`; what is behind the end of the flow is not its business."""
        if to < (self.position or 0):
            raise ValueError(
                f"offset {to} is before the position {self.position or 0}: after a seek begin a new ledger"
            )
        to = to if self.end is None else min(to, self.end)
        begin, self.position = self.position, to
        self._ledger._begin_at(to)
        if begin is not None and to > begin:
            self._ledger._finish(begin, to)

    @property
    def next_to_fetch(self) -> int | None:
        """Where it is worth reading on: the position, or the end of what is done there; None where it is at its end."""
        if self.position is None or self.finished:
            return None
        found = self._ledger._after(self.position)
        return found if self.end is None or found < self.end else None

    @property
    def finished(self) -> bool:
        """Whether everything up to the end was delivered; it may not be done yet."""
        return self.end is not None and self.position is not None and self._ledger._after(self.position) >= self.end
