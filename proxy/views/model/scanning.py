"""One Fetch of views: what of each base partition has been scanned for which slot, and what is to be read next.

Theory of operation. A view partition is a slot of a base partition. Each wanted slot has a position, which moves over
every batch that was scanned for it, kept or not. Slots of one base partition that stand at the same place move
together: a batch is read once for all of them. A place is an offset and the leader epoch that a client read up to it
(-1 goes with any): after a leader's log was cut, whoever read what is gone stands elsewhere than who did not.
`FetchScan.step` says what is read next:

- an answer is due once enough bytes matched and every slot had its look, or something was refused, or as much was
  scanned as one answer may cost;
- until then each base partition is read once per round, from one place. Where its slots stand apart, those that
  were not looked at yet come first, then the lowest; nothing waits then, for the highest has the rest in front of it;
- where each stands at one offset, the round may wait at the broker for what is left of the client's wait;
- once that is over, only what the broker has told nothing about yet is asked, without waiting.

A slot whose last scanned record was dropped ends with a gap, to be filled by one filler batch
(views/README.md rule 34). Epochs and watermarks of several rounds: views/README.md rule 24; errors:
views/README.md rule 27. Time is `now` of the caller, seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from proxy.wire.errors import ErrorCode

MAGIC_WITH_COUNT = 2
"""Batches from this magic on say how many records they hold."""


GATHERED_BYTES = 8 << 10
"""Parts that are smaller on the average are copied together: an answer may have tens of thousands."""

BATCH_COST_BYTES = 1 << 10
"""What one batch costs at least, however small it is."""


class SourceBatch(Protocol):
    """The header facts used here of `wire.batches.Batch`."""

    @property
    def last_offset(self) -> int:
        """Last offset, also when its record was compacted away."""

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""

    @property
    def magic(self) -> int:
        """The magic byte of the batch's format."""

    @property
    def leader_epoch(self) -> int:
        """In which it was appended; -1 unknown."""

    @property
    def max_timestamp(self) -> int:
        """Milliseconds since 1970."""

    @property
    def records_count(self) -> int:
        """Records in it, as the header says."""


class Part(Protocol):
    """What a slot gets of one source batch (`slicing.Slice`)."""

    @property
    def batch(self) -> bytes | memoryview | None:
        """None: nothing of it."""

    @property
    def last_kept(self) -> int:
        """Offset of the last kept record."""

    @property
    def records(self) -> int:
        """How many records it has."""


class Gap(NamedTuple):
    """Offsets at the end of an answer whose records were all dropped."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    """Of the last scanned batch."""
    max_timestamp: int


class BasePlace(NamedTuple):
    """Where slots stand together, as the broker judges them."""

    offset: int
    last_fetched_epoch: int = -1
    """Leader epoch of the record before the offset; -1 where no client there said one."""


class Facts(NamedTuple):
    """Where a base partition stands, as the broker said last."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class SlotScan:
    """One slot in one answer."""

    __slots__ = (
        "_covered",
        "_gathered",
        "_last",
        "_last_kept",
        "_last_part_end",
        "bytes",
        "fetch_offset",
        "is_full",
        "is_looked",
        "last_fetched_epoch",
        "max_bytes",
        "mistake",
        "parts",
        "position",
        "records",
        "scanned_bytes",
        "scanned_records",
        "slot",
    )

    def __init__(self, slot: int, fetch_offset: int, max_bytes: int, last_fetched_epoch: int = -1) -> None:
        self.slot = slot
        self.fetch_offset = self.position = fetch_offset
        """The first offset that has not been scanned."""
        self.max_bytes = max_bytes
        self.last_fetched_epoch = last_fetched_epoch
        """Leader epoch of the record before `position`; -1 where the client did not say (KIP-595)."""
        self.parts: list[bytes | memoryview] = []
        self.bytes = 0
        self.records = 0
        self.scanned_bytes = 0
        """Of the batches it was moved over."""
        self.scanned_records = 0
        self.is_full = False
        """The next part did not fit."""
        self.is_looked = False
        """It was scanned, or stands at the end."""
        self.mistake = ErrorCode.NONE
        """What is wrong at `position`: a batch that cannot be read, or an offset that the log does not have."""
        self._covered = fetch_offset - 1
        """Up to where the client's position gets by itself."""
        self._last_kept = -1
        self._last_part_end = -1
        self._gathered = 0
        self._last: SourceBatch | None = None

    @property
    def is_open(self) -> bool:
        """Whether more may be scanned."""
        return not self.is_full and self.mistake == ErrorCode.NONE

    @property
    def error(self) -> ErrorCode:
        """What the client is told: what is wrong is an error once it stands first."""
        return self.mistake if self.position == self.fetch_offset else ErrorCode.NONE

    def take(self, batch: SourceBatch, part: Part, room: int, *, at_least_one: bool) -> bool:
        """Move over one batch; False when its part does not fit into `room` or the client's limit.

        `at_least_one`: it is taken whatever its size (the answer would be empty otherwise).
        """
        data = part.batch
        self.is_looked = True
        if data is not None:
            size = len(data)
            if size > min(room, self.max_bytes - self.bytes) and not at_least_one:
                self.is_full = True
                return False
            self.parts.append(data)
            self.bytes += size
            self.records += part.records
            self._last_kept, self._last_part_end = part.last_kept, batch.last_offset
            whole = batch.magic >= MAGIC_WITH_COUNT and part.records >= batch.records_count
            self._covered = batch.last_offset if whole else part.last_kept
        self._last = batch
        self.position = batch.last_offset + 1
        self.scanned_bytes += batch.size
        self.scanned_records += batch.records_count
        if self.last_fetched_epoch >= 0:
            self.last_fetched_epoch = batch.leader_epoch
        return True

    def gather(self) -> None:
        """Make the small parts since the last call one, but for the last, which a filler may shorten."""
        since = self.parts[self._gathered : -1]
        if since and sum(map(len, since)) < GATHERED_BYTES * len(since):
            self.parts[self._gathered : -1] = [b"".join(since)]
        self._gathered = max(len(self.parts) - 1, 0)

    @property
    def gap(self) -> Gap | None:
        """What a filler has to cover at the end of the answer."""
        last = self._last
        if last is None or self._covered >= last.last_offset:
            return None
        base = max(self._covered + 1, self.fetch_offset)
        return Gap(base, last.last_offset, last.leader_epoch, last.max_timestamp)

    @property
    def cut_last_part_to(self) -> int | None:
        """The last offset that the last part may claim when a filler follows; None: it stays as it is."""
        overlaps = bool(self.parts) and self._covered == self._last_kept < self._last_part_end
        return self._last_kept if overlaps and self.gap is not None else None


class BaseScan:
    """One base partition in one answer, for all its wanted slots."""

    __slots__ = ("current_leader_epoch", "facts", "is_refused", "slots")

    def __init__(self, slots: list[SlotScan], current_leader_epoch: int = -1) -> None:
        self.slots = slots
        self.current_leader_epoch = current_leader_epoch
        """What the client said; -1 nothing."""
        self.facts: Facts | None = None
        """Of the last round; None: the broker was not heard yet."""
        self.is_refused = False
        """The broker gave an error, or a diverging epoch."""

    @property
    def is_open(self) -> bool:
        """Whether a slot wants more."""
        return any(slot.is_open for slot in self.slots)

    @property
    def is_looked(self) -> bool:
        """Whether each slot had its look."""
        return all(slot.is_looked or not slot.is_open for slot in self.slots)

    @property
    def is_apart(self) -> bool:
        """Whether open slots stand at several offsets."""
        return len({slot.position for slot in self.slots if slot.is_open}) > 1

    def places(self) -> list[BasePlace]:
        """Where open slots stand, ascending."""
        return _places(slot for slot in self.slots if slot.is_open)

    def at(self, place: BasePlace) -> list[SlotScan]:
        """The open slots there."""
        offset, epochs = place.offset, (-1, place.last_fetched_epoch)
        return [
            slot
            for slot in self.slots
            if slot.position == offset and slot.last_fetched_epoch in epochs and slot.is_open
        ]

    def next_place(self, turn: int) -> BasePlace:
        """Where to read next; `turn` rotates among places that nobody looked at. There must be an open slot."""
        unlooked = _places(slot for slot in self.slots if slot.is_open and not slot.is_looked)
        return unlooked[turn % len(unlooked)] if unlooked else self.places()[0]

    def told(self, place: BasePlace, facts: Facts) -> None:
        """The broker answered a read from there: who stands there had a look, if only at the end."""
        self.facts = facts
        for slot in self.at(place):
            slot.is_looked = True


def _places(slots: Iterable[SlotScan]) -> list[BasePlace]:
    """Who said no epoch goes with the others at that offset."""
    found = {BasePlace(slot.position, slot.last_fetched_epoch) for slot in slots}
    said = {place.offset for place in found if place.last_fetched_epoch >= 0}
    return sorted(place for place in found if place.last_fetched_epoch >= 0 or place.offset not in said)


class PlainScan:
    """A partition of the same request that is no view: its records pass as the broker gave them."""

    __slots__ = ("bytes", "is_done", "is_looked", "is_refused")

    def __init__(self) -> None:
        self.bytes = 0
        self.is_looked = False
        self.is_done = False
        """Its records, or its error, are part of the answer."""
        self.is_refused = False


class NextRead(NamedTuple):
    """What is to be read next of each base partition."""

    places: Sequence[tuple[BaseScan, BasePlace]]
    plains: Sequence[PlainScan]
    wait_s: float


class FetchScan:
    """All of one request."""

    def __init__(
        self,
        bases: Sequence[BaseScan],
        plains: Sequence[PlainScan] = (),
        *,
        deadline: float,
        min_bytes: int,
        max_bytes: int,
        scanned_max: int,
        turn: int = 0,
    ) -> None:
        self.bases = bases
        self.plains = plains
        self.deadline = deadline
        self.scanned = 0
        """Bytes of batches looked through, once per place."""
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._scanned_max = scanned_max
        self._spent = 0
        """What the batches looked through cost, in bytes."""
        self._turn = turn
        self._kept = 0

    @property
    def matched(self) -> int:
        """Bytes that the answer would have."""
        return self._kept + sum(plain.bytes for plain in self.plains)

    @property
    def room(self) -> int:
        """Bytes that still fit."""
        return self._max_bytes - self.matched

    @property
    def is_spent(self) -> bool:
        """As much was scanned as one answer may cost."""
        return self._spent >= self._scanned_max

    def take(self, slots: Iterable[SlotScan], batch: SourceBatch, parts: Sequence[Part], opened: int = 0) -> None:
        """Move these slots, which stand at one place, over one batch; `parts` in the same order.

        `opened`: bytes of its records when opened; 0 where they are not compressed.
        """
        self.scanned += batch.size
        self._spent += max(batch.size, opened, BATCH_COST_BYTES)
        matched = self.matched
        for slot, part in zip(slots, parts, strict=True):
            before = slot.bytes
            slot.take(batch, part, self._max_bytes - matched, at_least_one=matched == 0)
            matched += slot.bytes - before
            self._kept += slot.bytes - before

    def step(self, now: float) -> NextRead | None:
        """What is read next; None: it is time to answer."""
        if self._is_refused or now >= self.deadline or self.is_spent or self.room <= 0:
            return self._untold()
        if self.matched >= self._min_bytes:
            return self._unlooked()
        wanted = [(base, base.next_place(self._turn)) for base in self.bases if base.is_open]
        plains = [plain for plain in self.plains if not plain.is_done]
        if not wanted and not plains:
            return None
        apart = any(base.is_apart for base, _ in wanted)
        return NextRead(wanted, plains, 0.0 if apart else self.deadline - now)

    @property
    def _is_refused(self) -> bool:
        """Whether there is an error to be told, which ends the waiting."""
        of_views = any(base.is_refused or any(slot.error for slot in base.slots) for base in self.bases)
        return of_views or any(plain.is_refused for plain in self.plains)

    def _untold(self) -> NextRead | None:
        """What the answer cannot do without."""
        return self._look(base for base in self.bases if base.facts is None and not base.is_refused)

    def _unlooked(self) -> NextRead | None:
        return self._look(base for base in self.bases if not base.is_looked)

    def _look(self, bases: Iterable[BaseScan]) -> NextRead | None:
        wanted = [(base, base.next_place(self._turn)) for base in bases if base.is_open]
        plains = [plain for plain in self.plains if not plain.is_looked]
        return NextRead(wanted, plains, 0.0) if wanted or plains else None
