"""One Fetch upstream for views: what it names, and what becomes of its response."""

from __future__ import annotations

import pytest
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionRead, RequestedPartition
from kafka_share_proxy.views.fetch.base_reads import ViewRead, rotated
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.view_ports import ViewWorld

KEYS = [b"k%d" % number for number in range(10)]


@pytest.fixture
def world() -> ViewWorld:
    return ViewWorld()


def base_read(topic, offset: int = 0, partition: int = 0, epoch: int = 5) -> PartitionRead:
    return PartitionRead(ReadKey(topic.topic_id, partition, False), topic.name, offset, epoch, 1 << 20)


def read(world, *base_reads, plains=(), **options):
    arguments = {"wait_s": 0.0, "max_bytes": 1 << 20, "read_committed": False} | options
    client = world.connect()
    return client, ViewRead(client, world.services, world.views.reads, base_reads, plains, **arguments)


def test_response_becomes_a_chunk_that_others_find(world):
    topic = world.topic("t")
    world.produce(topic, KEYS)
    _, view_read = read(world, base_read(topic))
    chunk = view_read.chunks[ReadKey(topic.topic_id, 0, False)]
    assert (chunk.fetch_offset, chunk.next_offset, chunk.leader_epoch) == (0, 10, 5)
    assert world.views.reads.cache.find(chunk.key, 3, 5, world.timers.now()) is chunk
    assert world.views.reads.figures.read_bytes == len(chunk.records)


def test_read_is_registered_until_its_response(world):
    """Its connection and all potential waiters see it."""
    topic = world.topic("t")
    client, view_read = read(world, base_read(topic), wait_s=1.0)
    assert ViewRead.of(client) is view_read
    assert view_read in world.views.reads.flights.of(ReadKey(topic.topic_id, 0, False))
    world.timers.advance(1.0)
    assert view_read.done.done
    assert ViewRead.of(client) is None
    assert len(world.views.reads.flights) == 0


def test_end_of_the_connection_is_a_failure(world):
    topic = world.topic("t")
    client, view_read = read(world, base_read(topic), wait_s=1.0)
    client.lose_upstream()
    assert view_read.done.done
    assert view_read.failure is not None
    assert len(world.views.reads.flights) == 0


def test_refusals_are_kept_whole(world):
    """With what the view of the cluster learns from them."""
    topic = world.topic("t")
    world.cluster.fail_next[1] = [ErrorCode.FENCED_LEADER_EPOCH]
    _, view_read = read(world, base_read(topic))
    (refusal,) = view_read.refusals.values()
    assert refusal.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert not view_read.log_offsets


def test_plain_partition_at_the_same_place_serves_both(world):
    """One entry, two uses."""
    topic = world.topic("t")
    world.produce(topic, KEYS)
    entry = registry.message("FetchRequest").FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    _, view_read = read(world, base_read(topic), plains=[RequestedPartition(topic.topic_id, entry)])
    assert len(view_read.chunks) == 1
    assert bytes(view_read.plains[topic.topic_id, 0].records) == topic.logs[0].batches[0][2]
    assert len(world.cluster.requests(1)[0].topics[0].partitions) == 1


@pytest.mark.parametrize("version", [4, 11, 12])
def test_plain_partitions_known_by_name_are_queried_in_the_clients_version(world, version):
    topic, other = world.topic("t"), world.topic("u")
    world.produce(topic, KEYS)
    entry = registry.message("FetchRequest").FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    _, view_read = read(world, base_read(topic), plains=[RequestedPartition(other.name, entry)], version=version)
    assert len(view_read.chunks) == 1
    assert {topic.topic for topic in world.cluster.requests(1)[0].topics} == {"t", "u"}


def test_each_read_begins_with_the_next_partition():
    """And nothing is lost or doubled."""
    assert [rotated("abc", rotation) for rotation in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]
    assert rotated([], 5) == []
