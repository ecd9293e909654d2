"""Keys of cached chunks: read once, in a thread if they are compressed, from the other proxy in a fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.loop.interfaces import WorkersBusy
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.sharegroups.fetch import chunk_keys
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.far import FarWorld
from tests.support.ports import Member, World, acquired
from tests.support.scripted_cluster import Topic

ACCEPT = 1


def ordered(world: World) -> World:
    world.configure("g", share_auto_offset_reset="earliest", share_ordering="key")
    return world


@pytest.fixture(params=[World, FarWorld], ids=["here", "at another proxy"])
def world(request: pytest.FixtureRequest) -> World:
    return ordered(request.param())


def produced(world: World, keys: str, **batch: Any) -> tuple[Topic, Member]:
    topic = world.cluster.create("t")
    world.cluster.produce(topic, len(keys), keys=[None if key == "." else key.encode() for key in keys], **batch)
    member = world.member()
    member.heartbeat(0, ["t"])
    return topic, member


@pytest.mark.parametrize("codec", [0, 3])
def test_the_second_record_of_a_key_is_not_acquired_before_the_first_is_settled(world: World, codec: int) -> None:
    topic, member = produced(world, "aba.", codec=codec)
    assert acquired(member.fetch(topic)) == [(0, 1, 1), (3, 3, 1)]
    assert acquired(member.fetch(topic, wait_ms=0)) == []
    member.acknowledge({(topic.topic_id, 0): [(0, 0, [ACCEPT])]})
    assert acquired(member.fetch(topic)) == [(2, 2, 1)]


def test_keys_are_read_once_for_each_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    keys_in = chunk_keys.keys_in

    def counted(records: memoryview, first_offset: int) -> Any:
        reads.append(first_offset)
        return keys_in(records, first_offset)

    monkeypatch.setattr(chunk_keys, "keys_in", counted)
    topic, member = produced(ordered(World()), "aab")
    member.fetch(topic, max_records=1)
    member.fetch(topic, max_records=1)
    assert reads == [0]


def test_a_group_without_key_order_reads_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_keys, "keys_in", None)
    world = World()
    world.configure("g", share_auto_offset_reset="earliest")
    topic, member = produced(world, "aab")
    assert acquired(member.fetch(topic)) == [(0, 2, 1)]


class Busy:
    """Workers without room."""

    def run(self, work: Callable[[], Any], owner: Any = None, *, is_large: bool = False) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        promise.fail(WorkersBusy("too many"))
        return promise


def test_without_a_free_thread_the_next_request_tries_again() -> None:
    world = ordered(World())
    workers, world.services.workers = world.services.workers, Busy()
    topic, member = produced(world, "ab", codec=3)
    assert acquired(member.fetch(topic, wait_ms=0)) == []
    world.services.workers = workers
    assert acquired(member.fetch(topic)) == [(0, 1, 1)]


def test_records_that_cannot_be_read_are_an_error_of_their_partition() -> None:
    world = ordered(World())
    topic, member = produced(world, "ab")
    first, last, data = topic.logs[0].batches[0]
    broken = bytearray(data)
    broken[61] = 0xFF
    topic.logs[0].batches[0] = (first, last, bytes(broken))
    response = member.fetch(topic, wait_ms=0)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.CORRUPT_MESSAGE
    (note,) = [note for note in world.notes if note[0] == "share-order-keys-unreadable"]
    assert note[1]["partition"] == "t-0"
