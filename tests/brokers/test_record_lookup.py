"""Single records are read by offset from the leader, as far as they exist."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers import record_lookup
from kafka_share_proxy.brokers.record_lookup import RecordLookup
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost
from kafka_share_proxy.wire.records.records import Record

from tests.support.letter_world import LetterWorld
from tests.support.scripted_cluster import Topic


@pytest.fixture
def world() -> LetterWorld:
    return LetterWorld()


@pytest.fixture
def topic(world: LetterWorld) -> Topic:
    """Offsets 0-29 in batches of three."""
    created_topic = world.cluster.create("source", leaders=(1, 2))
    for number in range(10):
        world.cluster.produce(created_topic, 3, 1, value=b"%d" % number)
    return created_topic


def read(world: LetterWorld, topic: Topic, *offsets: int) -> dict[int, Record]:
    lookup = RecordLookup(world.own, world.services.topology, world.timers.now)
    result = on_its_own(lookup.read(topic.topic_id, 1, offsets)).result()
    assert result.end > offsets[-1]
    return result.records


def test_only_the_requested_records_are_returned(world: LetterWorld, topic: Topic) -> None:
    found_records = read(world, topic, 1, 4, 29)
    assert {offset: record.value for offset, record in found_records.items()} == {1: b"0", 4: b"1", 29: b"9"}


def test_records_far_apart_are_read_by_several_fetches(
    world: LetterWorld, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_lookup, "READ_BYTES", 200)
    assert sorted(read(world, topic, 0, 15, 29)) == [0, 15, 29]
    assert world.cluster.count(1) >= 3


def test_limits_leave_later_records_unread(world: LetterWorld, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = RecordLookup(world.own, world.services.topology, world.timers.now)
    monkeypatch.setattr(record_lookup, "READ_BYTES", 200)
    monkeypatch.setattr(record_lookup, "READS_MAX", 2)
    result = on_its_own(lookup.read(topic.topic_id, 1, [0, 15, 29])).result()
    assert (sorted(result.records), result.end) == ([0, 15], 29)
    result = on_its_own(lookup.read(topic.topic_id, 1, [0, 15, 29], until=world.timers.now())).result()
    assert (result.records, result.end) == ({}, 0)


def test_deleted_records_are_missing(world: LetterWorld, topic: Topic) -> None:
    world.cluster.delete_records(topic, 6, 1)
    assert sorted(read(world, topic, 1, 4, 7)) == [7]
    assert read(world, topic, 1, 4) == {}


def test_records_beyond_the_end_are_missing(world: LetterWorld, topic: Topic) -> None:
    assert sorted(read(world, topic, 29, 30)) == [29]


def test_a_moved_leader_fails_once_and_is_then_known(world: LetterWorld, topic: Topic) -> None:
    assert read(world, topic, 0)
    world.cluster.move_leader(topic, 3, 1)
    with pytest.raises(UpstreamLost, match=ErrorCode.NOT_LEADER_OR_FOLLOWER.name):
        read(world, topic, 0)
    assert read(world, topic, 0)


def test_an_unknown_topic_fails(world: LetterWorld) -> None:
    lookup = RecordLookup(world.own, world.services.topology, world.timers.now)
    with pytest.raises(UpstreamLost, match="no broker knows topic"):
        on_its_own(lookup.name_of(b"x" * 16)).result()
