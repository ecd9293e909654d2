"""Records that are opened and not yet returned."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.client import record_supply
from kafka_share_proxy.client.polled_records import PartitionRecords, RecordsUnreadable
from kafka_share_proxy.client.record_supply import RecordSupply
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.options import ConsumerOptions
from kafka_share_proxy.wire.records import compression
from kafka_share_proxy.wire.records.records import Record, build_batch
from kafka_share_proxy.wire.values import TopicPartition

from tests.client.test_polled_records import A0, A1, batch, chunk

KIB = 1024


class Buffered:
    """A core whose buffer holds these chunks."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.core = ConsumerCore(ConsumerOptions(), jitter=lambda: 0.0, member_id="m")
        self.core.positions.assign(partitions)
        for each in partitions:
            self.core.positions.seek(each, 0)
        self.supply = RecordSupply(self.core)

    def add(self, data: bytes, first: int, next_offset: int, partition: TopicPartition = A0) -> None:
        moves = self.core.positions[partition].moves
        self.core.fetches._buffer.append(chunk(data, first, next_offset, partition)._replace(moves=moves))

    def take(self, records_max: int = 1000, room: int = 1000) -> list[tuple[int, int]]:
        chunks = self.supply.take(records_max, lambda _: room)
        for part in chunks:
            self.core.consumed(part.partition, part.next_offset, part.flow)
        return shown(chunks)

    def position(self, partition: TopicPartition = A0) -> int | None:
        return self.core.positions[partition].offset


def shown(parts: list[PartitionRecords]) -> list[Any]:
    return [(part.partition.partition, record.offset) for part in parts for record in part.records]


def test_positions_go_ahead_with_what_is_returned() -> None:
    world = Buffered(A0, A1)
    world.add(batch(0, 5), 0, 5)
    world.add(batch(0, 5), 0, 5, A1)
    assert world.take(3) == [(0, 0), (0, 1), (0, 2)]
    assert (world.position(), world.position(A1)) == (3, 0)
    assert world.take(4) == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert (world.position(), world.position(A1)) == (5, 2)
    assert world.take() == [(1, 2), (1, 3), (1, 4)]
    assert world.take() == []


def test_remaining_records_are_dropped_when_their_position_moves() -> None:
    world = Buffered(A0, A1)
    world.add(batch(0, 5), 0, 5)
    world.add(batch(0, 2), 0, 2, A1)
    assert len(world.take(2)) == 2
    world.core.positions.seek(A0, 0)
    assert world.take() == [(1, 0), (1, 1)]


def test_remaining_records_wait_while_their_partition_is_paused_or_to_be_revoked() -> None:
    for stop, go_on in (("pause", "resume"), ("hold_back", "end_hold_back")):
        world = Buffered(A0, A1)
        world.add(batch(0, 5), 0, 5)
        world.add(batch(0, 2), 0, 2, A1)
        assert world.take(2) == [(0, 0), (0, 1)]
        getattr(world.core.positions, stop)([A0])
        assert world.take() == [(1, 0), (1, 1)]
        assert (world.take(), world.position()) == ([], 2)
        getattr(world.core.positions, go_on)([A0])
        assert world.take() == [(0, 2), (0, 3), (0, 4)]


def test_a_partition_without_room_waits_and_the_others_go_on() -> None:
    world = Buffered(A0, A1)
    world.add(batch(0, 5), 0, 5)
    world.add(batch(0, 2), 0, 2, A1)
    rooms = {A0: 3, A1: 9}
    assert shown(world.supply.take(100, rooms.__getitem__)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    rooms[A0] = 0
    assert shown(world.supply.take(100, rooms.__getitem__)) == []
    rooms[A0] = 9
    assert shown(world.supply.take(100, rooms.__getitem__)) == [(0, 3), (0, 4)]


def test_an_error_is_raised_after_all_earlier_records() -> None:
    broken = bytearray(batch(3, 2))
    broken[-1] ^= 1
    world = Buffered(A0, A1)
    world.add(batch(0, 3) + bytes(broken), 0, 5)
    world.add(batch(0, 2), 0, 2, A1)
    assert world.take(2) == [(0, 0), (0, 1)]
    assert world.take() == [(0, 2), (1, 0), (1, 1)]
    assert world.position() == 3
    with pytest.raises(RecordsUnreadable) as raised:
        world.take()
    assert raised.value.offset == 3
    assert world.take() == []


def test_an_error_of_one_partition_keeps_what_others_have() -> None:
    broken = bytearray(batch(0, 2))
    broken[-1] ^= 1
    world = Buffered(A0, A1)
    world.add(bytes(broken), 0, 2)
    world.add(batch(0, 2), 0, 2, A1)
    with pytest.raises(RecordsUnreadable):
        world.take()
    assert world.take() == [(1, 0), (1, 1)]


def test_remaining_records_are_dropped_when_their_partition_is_lost_and_returns() -> None:
    """Others may have read on meanwhile: what the group gives back begins at what is committed."""
    world = Buffered(A0)
    world.add(batch(0, 5), 0, 5)
    assert world.take(2) == [(0, 0), (0, 1)]
    world.core.positions.drop([A0])
    world.core.positions.assign([A0])
    world.core.positions.seek(A0, 4)
    assert (world.take(), world.position()) == ([], 4)


# Memory


def packed(first: int, count: int) -> bytes:
    """A batch that opens to more than KIB for each record."""
    return build_batch(first, [Record(value=bytes(KIB)) for _ in range(count)], codec=compression.GZIP)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of opened batches, with a budget of 10 KiB for one poll."""
    monkeypatch.setattr(record_supply, "OPENED_BYTES_MAX", 10 * KIB)
    sizes: list[int] = []
    real = compression.decompress

    def counted(codec: int, data: bytes, limit: int) -> bytes | memoryview:
        decompressed = real(codec, data, limit)
        sizes.append(len(decompressed))
        return decompressed

    monkeypatch.setattr(compression, "decompress", counted)
    return sizes


def test_a_batch_is_opened_once_and_when_it_is_next(opened: list[int]) -> None:
    """Issue 25.23: poll(max_records=1) opened a whole fetched chunk."""
    world = Buffered(A0)
    world.add(packed(0, 4) + packed(4, 4) + packed(8, 4), 0, 12)
    for number in range(12):
        assert world.take(1) == [(0, number)]
        assert len(opened) == number // 4 + 1
    assert world.take() == []


def test_a_poll_opens_no_further_batch_once_its_budget_is_spent(opened: list[int]) -> None:
    world = Buffered(A0, A1)
    world.add(b"".join(packed(4 * number, 4) for number in range(6)), 0, 24)
    world.add(packed(0, 4), 0, 4, A1)
    assert len(world.take()) == 12, "three batches of 4 KiB are above 10 KiB"
    assert len(opened) == 3
    assert len(world.take()) == 12
    assert world.take() == [(1, number) for number in range(4)]
    assert len(opened) == 7


def test_opened_batches_of_paused_partitions_are_closed_beyond_the_budget_and_nothing_is_lost(
    opened: list[int],
) -> None:
    places = [TopicPartition("a", number) for number in range(5)]
    world = Buffered(*places)
    for each in places:
        world.add(packed(0, 4), 0, 4, each)
        assert world.take(1) == [(each.partition, 0)]
        world.core.positions.pause([each])
    assert world.take() == []
    held = sum(reading.held_bytes for reading in world.supply._ready)
    assert 0 < held <= 10 * KIB
    world.core.positions.resume(places)
    records = [each for _ in range(5) for each in world.take()]
    assert sorted(records) == [(each.partition, number) for each in places for number in range(1, 4)]


def test_a_partition_without_room_keeps_no_opened_batch_beyond_the_budget(opened: list[int]) -> None:
    world = Buffered(A0, A1)
    world.add(packed(0, 12), 0, 12)
    world.add(packed(0, 4), 0, 4, A1)
    rooms = {A0: 2, A1: 9}
    assert shown(world.supply.take(100, rooms.__getitem__)) == [(0, 0), (0, 1)]
    rooms[A0] = 0
    assert len(world.supply.take(100, rooms.__getitem__)) > 0
    assert sum(reading.held_bytes for reading in world.supply._ready) == 0
    rooms[A0] = 9
    assert shown(world.supply.take(100, rooms.__getitem__)) == [(0, offset) for offset in range(2, 11)]


def test_a_batch_beyond_the_limit_of_one_batch_is_an_error_that_names_it() -> None:
    huge = build_batch(3, [Record(value=bytes(65 << 20))], codec=compression.ZSTD)
    world = Buffered(A0)
    world.add(packed(0, 3) + huge, 0, 4)
    assert len(world.take()) == 3
    with pytest.raises(RecordsUnreadable, match=r"a-0 at offset 3: .*more than 67108864 bytes when decompressed"):
        world.take()
