"""Records of a partition in the topic while the broker's metadata holds its ranges (commits/README.md rules 26 to 33).

Pure. The ranges of a partition are the union of the broker's text and these records. `ranges` is that union, which the
caller holds. Methods that return a change assume that its append begins. After a failed append they get it back
(`revert_failed`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_share_proxy.offsets.ranges import NO_CHANGE, OffsetRanges, OffsetSpan, RangeChange

SHORTEST = len("0-0,")


class TextPlan(NamedTuple):
    """Ranges of a partition in the metadata of its next commit, and appends before and after it."""

    ranges: str = ""
    spills: bool = False
    """True if all ranges are stored in the topic first."""
    rewinds: bool = False
    """True if the records of the partition are deleted first."""
    stores: bool = False
    """True if the metadata has no room for the ranges of the commit: the topic gets them after it."""
    tidies: bool = False
    """True if the metadata holds all ranges, so that the topic needs none."""


class TopicChange(NamedTuple):
    """Records to append after a commit."""

    change: RangeChange = NO_CHANGE
    binding: OffsetSpan | None = None
    is_awaited: bool = False
    """True if the client's response waits for the append."""


NOTHING = TopicChange()


@dataclass(slots=True)
class TopicRecords:
    """Records of one partition."""

    stored: OffsetRanges = field(default_factory=OffsetRanges)
    """Ranges in the topic. Some may be obsolete."""
    binding: OffsetSpan | None = None
    """Key of the record that is no range, but the topic id that the broker's text belongs to."""
    is_bound: bool = False
    """True if the topic has a record with the current topic id."""
    _unstored: OffsetRanges = field(default_factory=OffsetRanges)
    """Ranges that are not stored, if any are stored."""

    @property
    def exist(self) -> bool:
        return bool(self.stored) or self.binding is not None

    def load(self, ranges: OffsetRanges, stored: Iterable[OffsetSpan], binding: OffsetSpan | None) -> None:
        """`stored`: ranges that have a record of their own."""
        self.stored, self.binding = OffsetRanges(stored), binding
        self.is_bound = self.exist
        self.recount(ranges)

    # A commit

    def plan(self, ranges: OffsetRanges, ranges_after: OffsetRanges, change: RangeChange, room: int) -> TextPlan:
        """`ranges_after`: the ranges after the commit, by `change`. `room`: characters for ranges in the metadata."""
        is_empty = not self.stored
        if is_empty or _length_at_most(ranges_after) <= room:
            text = fitting(ranges_after, room)
            if text is not None:
                return TextPlan(text, tidies=not is_empty)
        if not is_empty:
            text = fitting(self._unstored_after(change), room)
            if text is not None:
                return TextPlan(text)
        text = fitting(OffsetRanges(change.put), room)
        return TextPlan(text or "", spills=self.stored != ranges, stores=text is None)

    def _unstored_after(self, change: RangeChange) -> OffsetRanges:
        unstored = self._unstored.copy()
        unstored.apply(self._change_of_unstored(change))
        return unstored

    def _change_of_unstored(self, change: RangeChange) -> RangeChange:
        return RangeChange(change.put, tuple(span for span in change.removed if _has(self._unstored, span)))

    def follow(self, change: RangeChange) -> None:
        """Apply the effect of an accepted commit on the ranges."""
        if self.stored and change:
            self._unstored.apply(self._change_of_unstored(change))

    def recount(self, ranges: OffsetRanges) -> None:
        """Find out again which ranges are not stored."""
        stored = self.stored
        self._unstored = OffsetRanges(span for span in ranges if not _has(stored, span)) if stored else OffsetRanges()

    def records_to_append(
        self, plan: TextPlan, ranges: OffsetRanges, committed: int, unsure: set[OffsetSpan]
    ) -> TopicChange:
        """Return the records to append after an accepted commit."""
        if plan.stores:
            return TopicChange(self.store_all(ranges, unsure, is_foreign=False), is_awaited=True)
        if plan.tidies and self.is_bound:
            return self._without(self.stored.clear())
        if plan.ranges and not self.is_bound:
            return self._bind(next(iter(ranges)))
        if self.stored and self.stored.start < committed:
            obsolete = self.stored.drop_below(committed)
            if obsolete:  # the newest value has the committed offset of its time (commits/README.md rule 15)
                refreshed = tuple(self.stored)[-1:]
                self.recount(ranges)
                removed = self._without(obsolete)
                return TopicChange(RangeChange(refreshed, removed.change.removed), removed.binding)
        return NOTHING

    def _bind(self, span: OffsetSpan) -> TopicChange:
        previous, self.binding, self.is_bound = self.binding, span, True
        removed = () if previous is None or previous == span else (previous,)
        return TopicChange(RangeChange((), removed), span, is_awaited=True)

    def _without(self, removed: tuple[OffsetSpan, ...]) -> TopicChange:
        """Delete records, but leave one with the topic id."""
        if self.exist or not removed:
            return TopicChange(RangeChange((), removed))
        self.binding = removed[-1]
        return TopicChange(RangeChange((), removed[:-1]), self.binding)

    # All records

    def store_all(self, ranges: OffsetRanges, unsure: set[OffsetSpan], *, is_foreign: bool) -> RangeChange:
        """Return the change after which the topic has these ranges.

        `is_foreign`: the broker may have a text for a deleted topic. Until it is overwritten, the record of that topic
        stays.
        """
        put = tuple(span for span in ranges if span in unsure or not _has(self.stored, span))
        removed = {span for span in (*self.stored, *unsure) if not _has(ranges, span)}
        unsure.clear()
        if self.binding is not None and not (self.is_bound or is_foreign):
            removed.add(self.binding)
        if self.binding in put or self.binding in removed:
            self.binding = None
        self.stored, self._unstored = ranges.copy(), OffsetRanges()
        self.is_bound = self.exist and (self.is_bound or self.binding is None)
        return RangeChange(put, tuple(sorted(removed.difference(put))))

    def delete_all(self, unsure: set[OffsetSpan]) -> RangeChange:
        removed = {*self.stored, *unsure} | ({self.binding} if self.binding is not None else set())
        unsure.clear()
        self.stored, self._unstored, self.binding, self.is_bound = OffsetRanges(), OffsetRanges(), None, False
        return RangeChange((), tuple(sorted(removed)))

    def drop_for_other_topic(self) -> RangeChange:
        """Delete the ranges of a deleted topic, but leave a record with its id until its text is overwritten."""
        removed = self.stored.clear()
        self._unstored, self.is_bound = OffsetRanges(), False
        if self.binding is None and removed:
            self.binding, removed = removed[-1], removed[:-1]
        return RangeChange((), removed)

    def revert_failed(self, change: RangeChange, binding: OffsetSpan | None, ranges: OffsetRanges) -> None:
        """Take back a change whose append failed."""
        self.stored.apply(RangeChange((), tuple(span for span in change.put if _has(self.stored, span))))
        if binding is not None and binding == self.binding:
            self.binding = None
        self.is_bound = self.exist and self.is_bound
        self.recount(ranges)

    def lacks(self, ranges: OffsetRanges, text: Iterable[tuple[int, int]]) -> bool:
        """Return True if the text and the topic together do not contain all ranges."""
        stored_and_text = self.stored.union(OffsetRanges(text))
        return not all(stored_and_text.covers(span.start, span.end) for span in ranges)


def fitting(ranges: OffsetRanges, room: int) -> str | None:
    """Return the text of the ranges. None if it is longer."""
    if not ranges:
        return ""
    if len(ranges) * SHORTEST - 1 > room:
        return None
    text = str(ranges)
    return text if len(text) <= room else None


def _length_at_most(ranges: OffsetRanges) -> int:
    return len(ranges) * 2 * (len(str(ranges.end)) + 1) if ranges else 0


def _has(ranges: OffsetRanges, span: OffsetSpan) -> bool:
    return ranges.range_at(span.start) == span
