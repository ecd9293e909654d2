"""Parts of one batch for the slots of one request."""

from __future__ import annotations

from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.workers import InlineWorkers
from kafka_share_proxy.views.fetch.shared_reads import ViewReads
from kafka_share_proxy.views.fetch.slot_parts import PartsMaking, PartsOfBatch
from kafka_share_proxy.views.fetch.view_chunks import Division, ViewCache
from kafka_share_proxy.views.model.scanning import SlotScan
from kafka_share_proxy.views.model.slots import EvenCut
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.records import compression

from tests.support.manual_timers import ManualTimers
from tests.views.fetch.test_view_chunks import batch_of, chunk_of


def parts_of(chunk, *slots: SlotScan, divisions=()) -> PartsOfBatch | ErrorCode:
    making = PartsMaking(ViewReads(ViewCache(1 << 20, 10.0)), InlineWorkers(), ManualTimers(), None)
    by_slot = dict(zip(slots, divisions, strict=False)) or dict.fromkeys(slots, Division("v", EvenCut(4)))
    tasks = []
    Task(making.of(chunk, 0, slots, by_slot), tasks.append).start()
    assert tasks[0].error is None
    return tasks[0].value


def test_parts_are_returned_in_the_order_of_the_slots():
    """Also those of several divisions; the opened bytes are counted once."""
    chunk = chunk_of(batch_of(0, 50, codec=compression.LZ4))
    slots = [SlotScan(slot, 0, 1 << 20) for slot in (3, 0, 0)]
    divisions = [Division("v", EvenCut(4)), Division("v", EvenCut(4)), Division("one", EvenCut(1))]
    parts = parts_of(chunk, *slots, divisions=divisions)
    whole = chunk.row(0, EvenCut(4), range(4))
    assert [part.records for part in parts.slices] == [whole[3].records, whole[0].records, 50]
    assert parts.decompressed_bytes == whole.decompressed_bytes > 50 * 10
    assert parts.size == sum(len(part.batch) for part in parts.slices)


def test_a_slot_within_a_batch_gets_the_records_from_its_position_on():
    """Nothing of that is kept for others."""
    chunk = chunk_of(batch_of(0, 50))
    parts = parts_of(chunk, SlotScan(0, 45, 1 << 20), divisions=[Division("one", EvenCut(1))])
    assert [part.records for part in parts.slices] == [5]
    assert chunk.tables == {}


def test_a_broken_batch_is_an_error():
    broken = bytearray(batch_of(0))
    broken[61] = 0x7F
    assert parts_of(chunk_of(bytes(broken)), SlotScan(0, 0, 100)) == ErrorCode.CORRUPT_MESSAGE
