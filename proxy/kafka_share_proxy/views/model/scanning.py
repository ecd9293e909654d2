"""State machine of one Fetch of views: what was scanned for which slot, and what to read next.

Slots of one base partition at the same `BasePosition` advance together. A `BasePosition` is an offset with the leader
epoch that a client has read up to it (-1: any). After the log of a leader was truncated, a client that has read
truncated records differs in that epoch from one that has not. `FetchScan.step` returns what to read next:

- The response is due once enough bytes matched and every slot was scanned at least once, or if something was refused,
  or if the scan has cost as much as one response may.
- Until then each base partition is read once per round, from one offset. If its slots are at different offsets, those
  that were not scanned yet have precedence, then the lowest. Such a round does not wait at the broker, because there
  are more records to read for the lower slots.
- If all slots of each base partition are at one offset, the round may wait at the broker for the rest of MaxWaitMs.
- After that time only partitions that the broker has not reported on yet are read, without waiting.

A slot whose last scanned record was dropped ends with a gap, which one filler batch covers (views/README.md rule 34).
Epochs and watermarks of several rounds: views/README.md rule 24. Errors: views/README.md rule 27.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kafka_share_proxy.wire.errors import ErrorCode

MAGIC_WITH_COUNT = 2
"""First magic whose header has the number of records."""

GATHERED_BYTES = 8 << 10
"""Average bytes of parts below which they are joined."""

BATCH_COST_BYTES = 1 << 10
"""Minimum cost of one batch in bytes."""


class SourceBatch(Protocol):
    """Header fields of `wire.records.batches.Batch` that are used here."""

    @property
    def last_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def magic(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def records_count(self) -> int: ...


class Part(Protocol):
    """Part of a batch for one slot (`slicing.Slice`)."""

    @property
    def batch(self) -> bytes | memoryview | None: ...

    @property
    def last_kept(self) -> int: ...

    @property
    def records(self) -> int: ...


class Gap(NamedTuple):
    """Offsets at the end of a response whose records were all dropped."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int


class BasePosition(NamedTuple):
    """Position of slots that advance together, as the broker validates it."""

    offset: int
    last_fetched_epoch: int = -1
    """-1 if no client at the offset sent one."""


class LogOffsets(NamedTuple):
    """Offsets of a base partition in the broker's last response."""

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
        "is_scanned",
        "last_fetched_epoch",
        "max_bytes",
        "parts",
        "position",
        "position_error",
        "records",
        "scanned_bytes",
        "scanned_records",
        "slot",
    )

    def __init__(self, slot: int, fetch_offset: int, max_bytes: int, last_fetched_epoch: int = -1) -> None:
        self.slot = slot
        self.fetch_offset = self.position = fetch_offset
        self.max_bytes = max_bytes
        self.last_fetched_epoch = last_fetched_epoch
        """Leader epoch of the record before `position` (KIP-595), or -1."""
        self.parts: list[bytes | memoryview] = []
        self.bytes = 0
        self.records = 0
        self.scanned_bytes = 0
        self.scanned_records = 0
        self.is_full = False
        """True if the next part did not fit."""
        self.is_scanned = False
        """True once a batch was scanned, or a read returned nothing at `position`."""
        self.position_error = ErrorCode.NONE
        """Error at `position`, for example an unreadable batch."""
        self._covered = fetch_offset - 1
        """Last offset that a client reaches without a filler."""
        self._last_kept = -1
        """Offset of the last record in `parts`, or -1."""
        self._last_part_end = -1
        """Last offset of the batch of the last part, or -1."""
        self._gathered = 0
        """Index of the first part that `gather` has not joined yet."""
        self._last: SourceBatch | None = None
        """Last scanned batch."""

    @property
    def is_open(self) -> bool:
        return not self.is_full and self.position_error == ErrorCode.NONE

    @property
    def error(self) -> ErrorCode:
        """Error for the client: one is returned only if it is at the fetch offset."""
        return self.position_error if self.position == self.fetch_offset else ErrorCode.NONE

    def advance(self, batch: SourceBatch, part: Part, room: int, *, at_least_one: bool) -> bool:
        """Advance over one batch. Return False if its part does not fit.

        `at_least_one`: accept a part of any size, because the response would be empty otherwise.
        """
        data = part.batch
        self.is_scanned = True
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
        """Join small parts, except for the last one, which a filler may shorten."""
        since = self.parts[self._gathered : -1]
        if since and sum(map(len, since)) < GATHERED_BYTES * len(since):
            self.parts[self._gathered : -1] = [b"".join(since)]
        self._gathered = max(len(self.parts) - 1, 0)

    @property
    def gap(self) -> Gap | None:
        """Offsets for a filler, or None."""
        last = self._last
        if last is None or self._covered >= last.last_offset:
            return None
        base = max(self._covered + 1, self.fetch_offset)
        return Gap(base, last.last_offset, last.leader_epoch, last.max_timestamp)

    @property
    def cut_last_part_to(self) -> int | None:
        """Offset at which the last part is cut. None if it stays unchanged."""
        overlaps = bool(self.parts) and self._covered == self._last_kept < self._last_part_end
        return self._last_kept if overlaps and self.gap is not None else None


class BaseScan:
    """One base partition in one response."""

    __slots__ = ("current_leader_epoch", "is_refused", "log_offsets", "slots")

    def __init__(self, slots: list[SlotScan], current_leader_epoch: int = -1) -> None:
        self.slots = slots
        self.current_leader_epoch = current_leader_epoch
        self.log_offsets: LogOffsets | None = None
        self.is_refused = False

    @property
    def is_open(self) -> bool:
        return any(slot.is_open for slot in self.slots)

    @property
    def is_scanned(self) -> bool:
        return all(slot.is_scanned or not slot.is_open for slot in self.slots)

    @property
    def has_several_positions(self) -> bool:
        """True if open slots are at different offsets."""
        return len({slot.position for slot in self.slots if slot.is_open}) > 1

    def positions(self) -> list[BasePosition]:
        """Return the positions of open slots, ascending."""
        return _positions(slot for slot in self.slots if slot.is_open)

    def at(self, position: BasePosition) -> list[SlotScan]:
        """Return the open slots that a read from this position serves."""
        offset, epochs = position.offset, (-1, position.last_fetched_epoch)
        return [
            slot
            for slot in self.slots
            if slot.position == offset and slot.last_fetched_epoch in epochs and slot.is_open
        ]

    def next_position(self, rotation: int) -> BasePosition:
        """Return the position to read next. At least one slot must be open."""
        unscanned = _positions(slot for slot in self.slots if slot.is_open and not slot.is_scanned)
        return unscanned[rotation % len(unscanned)] if unscanned else self.positions()[0]

    def on_response(self, position: BasePosition, log_offsets: LogOffsets) -> None:
        """Note the offsets of a response. The slots at the position count as scanned, even at the end of the log."""
        self.log_offsets = log_offsets
        for slot in self.at(position):
            slot.is_scanned = True


def _positions(slots: Iterable[SlotScan]) -> list[BasePosition]:
    """Return the different positions of slots. A slot without an epoch joins the others at its offset."""
    positions = {BasePosition(slot.position, slot.last_fetched_epoch) for slot in slots}
    offsets_with_epoch = {position.offset for position in positions if position.last_fetched_epoch >= 0}
    return sorted(
        position
        for position in positions
        if position.last_fetched_epoch >= 0 or position.offset not in offsets_with_epoch
    )


class PlainScan:
    """Partition of the same request that is not a view."""

    __slots__ = ("bytes", "is_done", "is_refused", "is_scanned")

    def __init__(self) -> None:
        self.bytes = 0
        self.is_scanned = False
        self.is_done = False
        self.is_refused = False


class NextRead(NamedTuple):
    """The next reads of base partitions and plain partitions."""

    positions: Sequence[tuple[BaseScan, BasePosition]]
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
        rotation: int = 0,
    ) -> None:
        self.bases = bases
        self.plains = plains
        self.deadline = deadline
        self.scanned = 0
        """Bytes of the scanned batches."""
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._scanned_max = scanned_max
        self._spent = 0
        """Cost in bytes of what was scanned or decompressed, at most about `scanned_max`."""
        self._rotation = rotation
        self._matched_bytes = 0

    @property
    def matched(self) -> int:
        """Bytes in the response."""
        return self._matched_bytes + sum(plain.bytes for plain in self.plains)

    @property
    def room(self) -> int:
        """Bytes that the response may still grow."""
        return self._max_bytes - self.matched

    @property
    def is_spent(self) -> bool:
        return self._spent >= self._scanned_max

    def advance(
        self, slots: Iterable[SlotScan], batch: SourceBatch, parts: Sequence[Part], decompressed_bytes: int = 0
    ) -> None:
        """Advance these slots, all at one position, over one batch. `decompressed_bytes`: 0 if it is not compressed."""
        self.scanned += batch.size
        self._spent += max(batch.size, decompressed_bytes, BATCH_COST_BYTES)
        matched = self.matched
        for slot, part in zip(slots, parts, strict=True):
            before = slot.bytes
            slot.advance(batch, part, self._max_bytes - matched, at_least_one=matched == 0)
            matched += slot.bytes - before
            self._matched_bytes += slot.bytes - before

    def step(self, now: float) -> NextRead | None:
        """Return the next reads, or None if the response is due."""
        if self._is_refused or now >= self.deadline or self.is_spent or self.room <= 0:
            return self._unreported()
        if self.matched >= self._min_bytes:
            return self._unscanned()
        reads = [(base, base.next_position(self._rotation)) for base in self.bases if base.is_open]
        plains = [plain for plain in self.plains if not plain.is_done]
        if not reads and not plains:
            return None
        is_split = any(base.has_several_positions for base, _ in reads)
        return NextRead(reads, plains, 0.0 if is_split else self.deadline - now)

    @property
    def _is_refused(self) -> bool:
        of_views = any(base.is_refused or any(slot.error for slot in base.slots) for base in self.bases)
        return of_views or any(plain.is_refused for plain in self.plains)

    def _unreported(self) -> NextRead | None:
        """Return the reads of partitions without any offsets yet."""
        return self._reads_of(base for base in self.bases if base.log_offsets is None and not base.is_refused)

    def _unscanned(self) -> NextRead | None:
        return self._reads_of(base for base in self.bases if not base.is_scanned)

    def _reads_of(self, bases: Iterable[BaseScan]) -> NextRead | None:
        reads = [(base, base.next_position(self._rotation)) for base in bases if base.is_open]
        plains = [plain for plain in self.plains if not plain.is_scanned]
        return NextRead(reads, plains, 0.0) if reads or plains else None
