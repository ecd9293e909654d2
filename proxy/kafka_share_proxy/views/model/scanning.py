"""State machine of one Fetch of views: what was scanned for which slot, and what to read next.

Theory of operation. A view partition is a slot of a base partition. Each wanted slot has a position, which advances
over every batch that was scanned for it, whether records were kept or not. Slots of one base partition at the same
`BasePlace` advance together: a batch is read once for all of them. A `BasePlace` is an offset with the leader epoch
that a client has read up to it (-1 matches any). After the log of a leader was truncated, a client that has read
truncated records differs in that epoch from one that has not. `FetchScan.step` returns what to read next:

- The response is due once enough bytes matched and every slot was scanned at least once, or if something was refused,
  or if the scan has cost as much as one response may.
- Until then each base partition is read once per round, from one offset. If its slots are at different offsets, those
  that were not scanned yet have precedence, then the lowest. Such a round does not wait at the broker, because there
  are more records to read for the lower slots.
- If all slots of each base partition are at one offset, the round may wait at the broker for the rest of MaxWaitMs.
- After that time only partitions that the broker has not reported on yet are read, without waiting.

A slot whose last scanned record was dropped ends with a gap, which one filler batch covers (views/README.md rule 34).
Epochs and watermarks of several rounds: views/README.md rule 24. Errors: views/README.md rule 27. `now` is the caller's
time in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kafka_share_proxy.wire.errors import ErrorCode

MAGIC_WITH_COUNT = 2
"""Lowest magic of batches whose header has the number of records."""


GATHERED_BYTES = 8 << 10
"""Average bytes of parts below which they are joined, because a response may have tens of thousands of them."""

BATCH_COST_BYTES = 1 << 10
"""Minimum cost of one batch in bytes, however small it is."""


class SourceBatch(Protocol):
    """Header fields of `wire.records.batches.Batch` that are used here."""

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
        """Leader epoch in which the batch was appended. -1 if unknown."""

    @property
    def max_timestamp(self) -> int:
        """Milliseconds since 1970."""

    @property
    def records_count(self) -> int:
        """Number of records according to the header."""


class Part(Protocol):
    """The part of a source batch for one slot (`slicing.Slice`)."""

    @property
    def batch(self) -> bytes | memoryview | None:
        """None if the slot gets no records of it."""

    @property
    def last_kept(self) -> int:
        """Offset of the last kept record."""

    @property
    def records(self) -> int:
        """Number of records."""


class Gap(NamedTuple):
    """Offsets at the end of a response whose records were all dropped."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    """Leader epoch of the last scanned batch."""
    max_timestamp: int


class BasePlace(NamedTuple):
    """Position of slots that advance together, in the terms that the broker validates."""

    offset: int
    last_fetched_epoch: int = -1
    """Leader epoch of the record before the offset. -1 if no client at the offset sent one."""


class Facts(NamedTuple):
    """Offsets of a base partition in the last response of the broker."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class SlotScan:
    """One slot in one response."""

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
        """Leader epoch of the record before `position`. -1 if the client sent none (KIP-595)."""
        self.parts: list[bytes | memoryview] = []
        self.bytes = 0
        self.records = 0
        self.scanned_bytes = 0
        """Bytes of the scanned batches."""
        self.scanned_records = 0
        self.is_full = False
        """True if the next part did not fit."""
        self.is_looked = False
        """True if the slot was scanned, or is at the end of the log."""
        self.mistake = ErrorCode.NONE
        """Error at `position`: a batch that cannot be decoded, or an offset that the log does not have."""
        self._covered = fetch_offset - 1
        """Last offset that the client's position reaches without a filler."""
        self._last_kept = -1
        self._last_part_end = -1
        self._gathered = 0
        self._last: SourceBatch | None = None

    @property
    def is_open(self) -> bool:
        """True if more may be scanned."""
        return not self.is_full and self.mistake == ErrorCode.NONE

    @property
    def error(self) -> ErrorCode:
        """Error code for the client. An error counts only if it is at the fetch offset."""
        return self.mistake if self.position == self.fetch_offset else ErrorCode.NONE

    def take(self, batch: SourceBatch, part: Part, room: int, *, at_least_one: bool) -> bool:
        """Advance over one batch. Return False if its part does not fit into `room` or the client's limit.

        With `at_least_one` it is added regardless of its size, because the response would be empty otherwise.
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
        """Join the small parts since the last call, except for the last one, which a filler may shorten."""
        since = self.parts[self._gathered : -1]
        if since and sum(map(len, since)) < GATHERED_BYTES * len(since):
            self.parts[self._gathered : -1] = [b"".join(since)]
        self._gathered = max(len(self.parts) - 1, 0)

    @property
    def gap(self) -> Gap | None:
        """The offsets that a filler has to cover at the end of the response."""
        last = self._last
        if last is None or self._covered >= last.last_offset:
            return None
        base = max(self._covered + 1, self.fetch_offset)
        return Gap(base, last.last_offset, last.leader_epoch, last.max_timestamp)

    @property
    def cut_last_part_to(self) -> int | None:
        """The last offset to set in the last part because a filler follows. None if it stays unchanged."""
        overlaps = bool(self.parts) and self._covered == self._last_kept < self._last_part_end
        return self._last_kept if overlaps and self.gap is not None else None


class BaseScan:
    """One base partition in one response, for all its wanted slots."""

    __slots__ = ("current_leader_epoch", "facts", "is_refused", "slots")

    def __init__(self, slots: list[SlotScan], current_leader_epoch: int = -1) -> None:
        self.slots = slots
        self.current_leader_epoch = current_leader_epoch
        """The epoch in the client's request. -1 if none."""
        self.facts: Facts | None = None
        """Offsets of the last round. None before the first response of the broker."""
        self.is_refused = False
        """True after an error or a diverging epoch from the broker."""

    @property
    def is_open(self) -> bool:
        """True if any slot may scan more."""
        return any(slot.is_open for slot in self.slots)

    @property
    def is_looked(self) -> bool:
        """True if each slot was scanned, is at the end of the log, or is closed."""
        return all(slot.is_looked or not slot.is_open for slot in self.slots)

    @property
    def is_apart(self) -> bool:
        """True if open slots are at different offsets."""
        return len({slot.position for slot in self.slots if slot.is_open}) > 1

    def places(self) -> list[BasePlace]:
        """Return the positions of open slots, ascending."""
        return _places(slot for slot in self.slots if slot.is_open)

    def at(self, place: BasePlace) -> list[SlotScan]:
        """Return the open slots at this position."""
        offset, epochs = place.offset, (-1, place.last_fetched_epoch)
        return [
            slot
            for slot in self.slots
            if slot.position == offset and slot.last_fetched_epoch in epochs and slot.is_open
        ]

    def next_place(self, turn: int) -> BasePlace:
        """Return the position to read next. `turn` rotates among positions not scanned yet. At least one slot must be
        open."""
        unlooked = _places(slot for slot in self.slots if slot.is_open and not slot.is_looked)
        return unlooked[turn % len(unlooked)] if unlooked else self.places()[0]

    def told(self, place: BasePlace, facts: Facts) -> None:
        """Note the broker's response to a read from this position. Its slots count as scanned, even at the end of the
        log."""
        self.facts = facts
        for slot in self.at(place):
            slot.is_looked = True


def _places(slots: Iterable[SlotScan]) -> list[BasePlace]:
    """Return the positions of these slots. A slot without an epoch joins the others at its offset."""
    found = {BasePlace(slot.position, slot.last_fetched_epoch) for slot in slots}
    said = {place.offset for place in found if place.last_fetched_epoch >= 0}
    return sorted(place for place in found if place.last_fetched_epoch >= 0 or place.offset not in said)


class PlainScan:
    """A partition of the same request that is not a view. Its records are passed on unchanged."""

    __slots__ = ("bytes", "is_done", "is_looked", "is_refused")

    def __init__(self) -> None:
        self.bytes = 0
        self.is_looked = False
        self.is_done = False
        """True once its records or its error are in the response."""
        self.is_refused = False


class NextRead(NamedTuple):
    """The next reads of base partitions and plain partitions."""

    places: Sequence[tuple[BaseScan, BasePlace]]
    plains: Sequence[PlainScan]
    wait_s: float


class FetchScan:
    """The state of one whole request."""

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
        """Bytes of scanned batches, counted once per position."""
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._scanned_max = scanned_max
        self._spent = 0
        """Cost of the scanned batches in bytes."""
        self._turn = turn
        self._kept = 0

    @property
    def matched(self) -> int:
        """Bytes in the response so far."""
        return self._kept + sum(plain.bytes for plain in self.plains)

    @property
    def room(self) -> int:
        """Bytes that still fit into the response."""
        return self._max_bytes - self.matched

    @property
    def is_spent(self) -> bool:
        """True if the scan has cost as much as one response may."""
        return self._spent >= self._scanned_max

    def take(self, slots: Iterable[SlotScan], batch: SourceBatch, parts: Sequence[Part], opened: int = 0) -> None:
        """Advance these slots, all at one position, over one batch. `parts` are in the same order.

        `opened`: bytes of the records when decompressed, 0 if they are not compressed.
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
        """Return what to read next. None if the response is due."""
        if self._is_refused or now >= self.deadline or self.is_spent or self.room <= 0:
            return self._unreported()
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
        """True if there is an error to return, which ends the waiting."""
        of_views = any(base.is_refused or any(slot.error for slot in base.slots) for base in self.bases)
        return of_views or any(plain.is_refused for plain in self.plains)

    def _unreported(self) -> NextRead | None:
        """Return the reads without which there can be no response: those of partitions without any offsets yet."""
        return self._look(base for base in self.bases if base.facts is None and not base.is_refused)

    def _unlooked(self) -> NextRead | None:
        return self._look(base for base in self.bases if not base.is_looked)

    def _look(self, bases: Iterable[BaseScan]) -> NextRead | None:
        wanted = [(base, base.next_place(self._turn)) for base in bases if base.is_open]
        plains = [plain for plain in self.plains if not plain.is_looked]
        return NextRead(wanted, plains, 0.0) if wanted or plains else None
