"""The machine of one Fetch of views, against a log that is only numbers: what it reads, and that nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_share_proxy.views.model.scanning import (
    BATCH_COST_BYTES,
    GATHERED_BYTES,
    BasePosition,
    BaseScan,
    FetchScan,
    Gap,
    LogOffsets,
    PlainScan,
    SlotScan,
)
from kafka_share_proxy.wire.errors import ErrorCode

NOWHERE = -1


@dataclass
class Batch:
    """A batch whose records lie in slots[i], offset base + i; None where compaction took one."""

    base_offset: int
    slots: list[int | None]
    size: int = 100
    magic: int = 2
    leader_epoch: int = 3
    max_timestamp: int = 7

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.slots) - 1

    @property
    def records_count(self) -> int:
        return sum(slot is not None for slot in self.slots)

    def part(self, slot: int) -> Part:
        offsets = [self.base_offset + i for i, owner in enumerate(self.slots) if owner == slot]
        return Part(
            bytes(10 * len(offsets)) if offsets else None, offsets[-1] if offsets else -1, len(offsets), offsets
        )


@dataclass
class Part:
    batch: bytes | None
    last_kept: int
    records: int
    offsets: list[int]


def log_of(batches: list[list[int | None]]) -> list[Batch]:
    log, offset = [], 0
    for slots in batches:
        log.append(Batch(offset, slots))
        offset += len(slots)
    return log


class Broker:
    """Plays the rounds that the machine requests, each with an arbitrary number of batches."""

    def __init__(self, log: list[Batch], per_read: int = 2) -> None:
        self.log, self.per_read = log, per_read
        self.end = log[-1].last_offset + 1 if log else 0
        self.now = 0.0
        self.rounds: list[tuple[int, float]] = []
        self.slot_offsets: dict[SlotScan, list[int]] = {}

    def run(self, scan: FetchScan, limit: int = 1000) -> None:
        for _ in range(limit):
            step = scan.step(self.now)
            if step is None:
                return
            for plain in step.plains:
                plain.is_scanned = plain.is_done = True
                plain.bytes = 1
            for base, place in step.positions:
                self.rounds.append((place.offset, step.wait_s))
                self.respond(scan, base, place, step.wait_s)
        raise AssertionError("the machine asks without end")

    def respond(self, scan: FetchScan, base: BaseScan, place: BasePosition, wait_s: float) -> None:
        batches = [batch for batch in self.log if batch.last_offset >= place.offset][: self.per_read]
        if not batches:
            self.now += wait_s
        for batch in batches:
            slots = [
                slot for slot in base.slots if slot.is_open and batch.base_offset <= slot.position <= batch.last_offset
            ]
            parts = [batch.part(slot.slot) for slot in slots]
            before = {slot: slot.bytes for slot in slots}
            scan.advance(slots, batch, parts)
            for slot, part in zip(slots, parts, strict=True):
                if slot.bytes > before[slot]:
                    self.slot_offsets.setdefault(slot, []).extend(part.offsets)
        base.on_response(place, LogOffsets(self.end, self.end, 0))


def scan_of(*bases: BaseScan, plains: tuple[PlainScan, ...] = (), **options: float) -> FetchScan:
    arguments = {"deadline": 1.0, "min_bytes": 1, "max_bytes": 1 << 20, "scanned_max": 1 << 20} | options
    return FetchScan(list(bases), plains, **arguments)


SLOTS = st.integers(0, 3)
LOGS = st.lists(st.lists(st.none() | SLOTS, min_size=1, max_size=6), max_size=12)


@settings(max_examples=300, deadline=None)
@given(LOGS, st.integers(1, 4), st.integers(0, 60), st.integers(10, 200), st.integers(100, 500), st.integers(0, 5))
def test_all_slots_together_get_every_record_once(batches, per_read, min_bytes, max_bytes, scanned_max, rotation):
    """In order, however little a response may hold; each response advances a slot, or it is at the end."""
    log = log_of(batches)
    end = sum(map(len, batches))
    offsets = dict.fromkeys(range(4), 0)
    got: dict[int, list[int]] = {slot: [] for slot in range(4)}
    for _ in range(500):
        if all(offset >= end for offset in offsets.values()):
            break
        slots = [SlotScan(slot, offset, 1 << 20) for slot, offset in offsets.items()]
        broker = Broker(log, per_read)
        options = {"min_bytes": min_bytes, "max_bytes": max_bytes, "scanned_max": scanned_max, "rotation": rotation}
        broker.run(scan_of(BaseScan(slots), **options))
        assert broker.now <= 1.0
        assert sum(slot.position for slot in slots) > sum(offsets.values())
        for slot in slots:
            got[slot.slot] += broker.slot_offsets.get(slot, [])
            gap = slot.gap
            assert slot.position == (gap.last_offset + 1 if gap else max(slot.position, slot.fetch_offset))
            offsets[slot.slot] = slot.position
        rotation += 1
    expected = {s: [b.base_offset + i for b in log for i, o in enumerate(b.slots) if o == s] for s in range(4)}
    assert got == expected


@settings(deadline=None)
@given(LOGS.filter(bool), SLOTS)
def test_gap_begins_after_what_is_kept_and_ends_at_what_was_scanned(batches, number):
    """And is there exactly when the last scanned record was dropped."""
    log, slot = log_of(batches), SlotScan(number, 0, 1 << 20)
    for batch in log:
        slot.advance(batch, batch.part(number), 1 << 20, at_least_one=False)
    offsets = [b.base_offset + i for b in log for i, owner in enumerate(b.slots) if owner == number]
    last = log[-1]
    all_kept = last.records_count > 0 and all(owner in (number, None) for owner in last.slots)
    if all_kept or (offsets and offsets[-1] == last.last_offset):
        assert slot.gap is None
        assert slot.cut_last_part_to is None
        return
    assert slot.gap is not None
    assert slot.gap.last_offset == last.last_offset
    assert (slot.gap.leader_epoch, slot.gap.max_timestamp) == (3, 7)
    first = slot.gap.base_offset
    holder = next((b for b in reversed(log) if any(owner == number for owner in b.slots)), None)
    if holder is None:
        assert first == 0
    elif all(owner in (number, None) for owner in holder.slots):
        assert first == holder.last_offset + 1
        assert slot.cut_last_part_to is None
    else:
        assert first == offsets[-1] + 1
        assert slot.cut_last_part_to == (None if offsets[-1] == holder.last_offset else offsets[-1])


def test_gap_begins_at_the_fetch_offset_where_nothing_was_kept():
    slot = SlotScan(0, 5, 1 << 20)
    slot.advance(Batch(0, [1] * 10), Part(None, -1, 0, []), 1 << 20, at_least_one=True)
    assert slot.gap == Gap(5, 9, 3, 7)


def test_first_round_waits_for_the_whole_wait():
    """One request at the broker if there is nothing to read (T4)."""
    broker = Broker([])
    broker.run(scan_of(BaseScan([SlotScan(0, 0, 100), SlotScan(1, 0, 100)])))
    assert broker.rounds == [(0, 1.0)]


def test_request_that_does_not_wait_gets_the_end_of_the_log():
    broker, base = Broker([]), BaseScan([SlotScan(0, 0, 100)])
    broker.run(scan_of(base, deadline=0.0))
    assert broker.rounds == [(0, 0.0)]
    assert base.log_offsets == LogOffsets(0, 0, 0)


def test_slots_far_apart_do_not_wait_and_each_has_its_read():
    """Neither the slot at the lower offset nor the one at the higher is starved by the other."""
    log = log_of([[0], [0], [0], [0], [0], [1], [1], [1]])
    slots = [SlotScan(0, 0, 100), SlotScan(1, 6, 100)]
    broker = Broker(log, per_read=1)
    broker.run(scan_of(BaseScan(slots)))
    assert [wait for _, wait in broker.rounds] == [0.0, 0.0]
    assert all(slot.bytes for slot in slots)


def test_unmatched_data_is_read_on_until_something_matches():
    log = log_of([[1], [1], [1], [0], [0]])
    slot = SlotScan(0, 0, 100)
    broker = Broker(log, per_read=1)
    broker.run(scan_of(BaseScan([slot])))
    assert (slot.position, len(broker.rounds)) == (4, 4)


def test_response_is_due_when_enough_was_scanned():
    slot = SlotScan(0, 0, 100)
    broker = Broker(log_of([[1]] * 50), per_read=1)
    broker.run(scan_of(BaseScan([slot]), scanned_max=10 * BATCH_COST_BYTES))
    assert (slot.position, slot.gap) == (10, Gap(0, 9, 3, 7))


def test_a_response_is_due_at_the_limit_of_decompressed_bytes():
    """The opened bytes of a compressed batch count, however small it is."""
    slot, batch = SlotScan(0, 0, 100), Batch(0, [1])
    scan = scan_of(BaseScan([slot]), scanned_max=1 << 20)
    scan.advance([slot], batch, [batch.part(0)], decompressed_bytes=(1 << 20) - 1)
    assert not scan.is_spent
    scan.advance([slot], batch, [batch.part(0)])
    assert scan.is_spent
    assert scan.scanned == 2 * batch.size


def test_client_limit_cuts_between_batches_and_lets_one_through():
    """At least one part is in a response, however large."""
    slots = [SlotScan(0, 0, 5), SlotScan(1, 0, 5)]
    broker = Broker(log_of([[0], [1], [0]]), per_read=3)
    broker.run(scan_of(BaseScan(slots)))
    assert [slot.bytes for slot in slots] == [10, 0]
    assert [slot.position for slot in slots] == [2, 1]
    assert [slot.is_full for slot in slots] == [True, True]


def test_refusal_ends_the_waiting():
    """Partitions without a result are requested once more, without waiting."""
    refused, other = BaseScan([SlotScan(0, 0, 100)]), BaseScan([SlotScan(0, 0, 100)])
    scan = scan_of(refused, other)
    refused.is_refused = True
    step = scan.step(0.0)
    assert step is not None
    assert (step.positions, step.wait_s) == ([(other, BasePosition(0))], 0.0)
    other.on_response(BasePosition(0), LogOffsets(0, 0, 0))
    assert scan.step(0.0) is None


def test_readers_of_other_leader_epochs_have_separate_positions():
    """At one offset the broker judges each epoch separately; a request without one goes with any, and no request is in
    vain.
    """
    slots = [SlotScan(slot, 8, 100, epoch) for slot, epoch in enumerate((5, 7, -1, 5))]
    base = BaseScan(slots)
    five, seven = base.positions()
    assert (five, seven) == (BasePosition(8, 5), BasePosition(8, 7))
    assert [slot.slot for slot in base.at(five)] == [0, 2, 3]
    assert [slot.slot for slot in base.at(seven)] == [1, 2]
    assert {base.next_position(rotation) for rotation in range(2)} == {five, seven}
    assert scan_of(base).step(0.0).wait_s == 1.0  # the records are for the judged ones, the others are next
    base.on_response(five, LogOffsets(8, 8, 0))
    assert base.next_position(0) == seven
    silent = BaseScan([SlotScan(0, 8, 100), SlotScan(1, 9, 100)])
    assert silent.positions() == [BasePosition(8), BasePosition(9)]


def test_an_unreadable_batch_is_an_error_only_at_the_fetch_offset():
    slot = SlotScan(0, 0, 100)
    slot.position_error = ErrorCode.CORRUPT_MESSAGE
    assert slot.error == ErrorCode.CORRUPT_MESSAGE
    slot = SlotScan(0, 0, 100)
    slot.advance(Batch(0, [1]), Part(None, -1, 0, []), 100, at_least_one=True)
    slot.position_error = ErrorCode.CORRUPT_MESSAGE
    assert slot.error == ErrorCode.NONE


def test_the_last_fetched_epoch_is_that_of_the_scanned_batch_if_the_client_sent_one():
    with_epoch, silent = SlotScan(0, 0, 100, 1), SlotScan(0, 0, 100)
    for slot in (with_epoch, silent):
        slot.advance(Batch(0, [0]), Batch(0, [0]).part(0), 100, at_least_one=True)
    assert (with_epoch.last_fetched_epoch, silent.last_fetched_epoch) == (3, -1)


def test_plain_partitions_are_planned_with_the_others():
    plain = PlainScan()
    broker = Broker(log_of([[0]]))
    scan = scan_of(BaseScan([SlotScan(0, 0, 100)]), plains=(plain,))
    broker.run(scan)
    assert plain.is_scanned
    assert scan.matched == 11


@pytest.mark.parametrize("magic", [0, 1])
def test_missing_records_of_old_messages_are_unknown(magic):
    """A wrapper counts as one record, however many were kept of it."""
    slot = SlotScan(0, 0, 100)
    slot.advance(Batch(0, [0, 0, 1], magic=magic), Part(b"x", 1, 2, [0, 1]), 100, at_least_one=True)
    assert slot.gap == Gap(2, 2, 3, 7)


def test_small_parts_are_gathered_but_for_the_last():
    """A filler may have to shorten that one; large parts stay as they are."""
    slot, small = SlotScan(0, 0, 1 << 20), Part(b"x" * 10, 1, 2, [0, 1])
    for base in range(5):
        slot.advance(Batch(2 * base, [0, 0]), small, 1 << 20, at_least_one=True)
    slot.gather()
    assert list(map(len, slot.parts)) == [40, 10]
    for base in range(5, 8):
        slot.advance(Batch(2 * base, [0, 0]), small, 1 << 20, at_least_one=True)
    slot.gather()
    slot.gather()
    assert list(map(len, slot.parts)) == [40, 30, 10]
    large = Part(bytes(GATHERED_BYTES), 1, 2, [0, 1])
    for base in range(8, 11):
        slot.advance(Batch(2 * base, [0, 0]), large, 1 << 20, at_least_one=True)
    slot.gather()
    assert slot.parts[-1] is large.batch
    assert sum(map(len, slot.parts)) == slot.bytes == 80 + 3 * GATHERED_BYTES
