"""Reading of partitions that are taken over: ahead of the takeover record, and up to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from kafka_share_proxy.brokers.internal_topics import TopicLeaders
from kafka_share_proxy.durable.leader_watch import LeaderWatch
from kafka_share_proxy.durable.ownership import Takeover
from kafka_share_proxy.durable.producer_requests import TakenOver
from kafka_share_proxy.durable.takeover_reader import TakeoverReader
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError
from kafka_share_proxy.wire.records.records import Record
from trio.testing import MockClock

from tests.support.small_state import TEST_STATE, encode_key
from tests.support.target_brokers import NODE, TargetBrokers

PARTITIONS = (0, 1)
PRODUCER = 7


class World:
    """A takeover of two partitions with one leader."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.brokers = TargetBrokers(nursery, nodes=1)
        self.brokers.make(TEST_STATE.topic, 8)
        self.notes: list[str] = []
        self.unreadable: list[int] = []
        self.takeover = Takeover(set(PARTITIONS))
        self.takeover.select_next(())
        self.reader = TakeoverReader(
            self.takeover,
            self._leaders(),
            self.brokers.settings,
            TEST_STATE,
            lambda error, _partitions: self.notes.append(str(error)),
            self._leave_out,
        )

    def _leave_out(self, partition: int, _error: RemoteProtocolError) -> None:
        self.takeover.replays.pop(partition, None)
        self.unreadable.append(partition)

    def _leaders(self) -> LeaderWatch:
        ignore: Callable[..., None] = lambda *_args, **_context: None  # noqa: E731
        watch = LeaderWatch(TEST_STATE.topic, 8, self.brokers.settings, ignore)
        watch.learn(TopicLeaders(8, dict.fromkeys(range(8), NODE), {NODE: self.brokers.address(NODE)}))

        async def refresh() -> None:
            """Leaders do not move."""

        watch.refresh = refresh  # type: ignore[method-assign]
        return watch

    def write(self, partition: int, *records: Record, epoch: int = 0) -> int:
        return self.brokers.write(TEST_STATE.topic, partition, list(records), PRODUCER, epoch)

    def take_over(self, partition: int, epoch: int = 0) -> None:
        """Append a takeover record, and let the takeover know it."""
        record = TEST_STATE.takeover("p:1", partition, PRODUCER, epoch)
        offset = self.write(partition, record, epoch=epoch)
        self.takeover.taken_over[partition] = TakenOver(offset, PRODUCER, epoch)

    def filled(self) -> None:
        for partition in PARTITIONS:
            self.take_over(partition)
            self.write(partition, text("a", partition))

    def values(self) -> dict[int, list[bytes]]:
        return {partition: list(each.values.values()) for partition, each in self.takeover.replays.items()}


def text(key: str, value: object) -> Record:
    return Record(encode_key(key), str(value).encode())


@pytest.fixture
def world(nursery: trio.Nursery) -> World:
    return World(nursery)


async def test_one_fetch_remains_after_what_was_read_ahead(world: World) -> None:
    world.filled()
    await world.reader.read_ahead()
    assert world.values() == {0: [b"0"], 1: [b"1"]}
    ahead = list(world.brokers.requested)
    for partition in PARTITIONS:
        world.write(partition, text("b", "late"))
        world.take_over(partition, epoch=1)
    await world.reader.read()
    assert world.values() == {0: [b"0", b"late"], 1: [b"1", b"late"]}
    assert world.brokers.requested[len(ahead) :] == [ApiKey.FETCH]
    await world.reader.aclose()


async def test_log_that_was_read_beyond_the_takeover_record_is_read_again(world: World) -> None:
    world.filled()
    for partition in PARTITIONS:
        world.take_over(partition, epoch=1)
    for partition in PARTITIONS:
        next_owner = TEST_STATE.takeover("p:2", partition, PRODUCER, 2)
        world.write(partition, next_owner, text("a", "of the next owner"), epoch=2)
    await world.reader.read_ahead()
    assert world.values() == {partition: [b"of the next owner"] for partition in PARTITIONS}
    await world.reader.read()
    assert world.values() == {0: [b"0"], 1: [b"1"]}
    await world.reader.aclose()


@pytest.mark.parametrize("key", [ApiKey.LIST_OFFSETS, ApiKey.FETCH])
async def test_failure_to_read_ahead_is_left_to_the_read(world: World, key: int, autojump_clock: MockClock) -> None:
    world.filled()
    fault = world.brokers.refuse(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await world.reader.read_ahead()
    assert world.notes == []
    world.brokers.faults.remove(fault)
    for partition in PARTITIONS:
        world.take_over(partition, epoch=1)
    await world.reader.read()
    assert world.values() == {0: [b"0"], 1: [b"1"]}
    await world.reader.aclose()


async def test_log_that_lost_its_first_records_meanwhile_is_read_from_its_new_start(
    world: World, autojump_clock: MockClock
) -> None:
    world.filled()
    await world.reader.read_ahead()
    for partition in PARTITIONS:
        world.write(partition, *[text("c", number) for number in range(5)])
        world.take_over(partition, epoch=1)
        world.brokers.target.delete_records(TEST_STATE.topic, partition, 5)
    await world.reader.read()
    assert [each.start for each in world.takeover.replays.values()] == [5, 5]
    assert any("OFFSET_OUT_OF_RANGE" in note for note in world.notes)
    await world.reader.aclose()


async def test_unreadable_partition_is_left_out_and_the_others_are_read(world: World) -> None:
    world.filled()
    world.write(1, Record(b"\0\x09new", b"x"))
    await world.reader.read_ahead()
    for partition in PARTITIONS:
        world.take_over(partition, epoch=1)
    await world.reader.read()
    assert world.unreadable == [1]
    assert world.values() == {0: [b"0"]}
    assert world.takeover.replays[0].start == 0, "the guard compares it with the start of the log later"
    await world.reader.aclose()


async def test_partition_given_up_meanwhile_is_not_read(world: World) -> None:
    world.filled()
    await world.reader.read_ahead()
    world.take_over(0, epoch=1)
    world.takeover.remove([1])
    await world.reader.read()
    assert world.values() == {0: [b"0"]}
    await world.reader.aclose()


async def test_had_owner_reads_the_logs_to_their_ends(world: World) -> None:
    assert not await world.reader.had_owner(PARTITIONS)
    world.take_over(1)
    assert await world.reader.had_owner(PARTITIONS)
    await world.reader.aclose()
