"""One Fetch upstream: its version, its names, and the order in which its waiters are notified."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.rights import Right, rights_of
from kafka_share_proxy.brokers.topic_leaders import on_topics, request_topics
from kafka_share_proxy.forwarding.dispatch.offered_versions import EffectiveVersions, Offer
from kafka_share_proxy.reading.chunk_cache import ReadKey
from kafka_share_proxy.reading.upstream_fetch import PartitionRead, UpstreamFetch, fetch_version
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

from tests.support.ports import World


class Reading(UpstreamFetch):
    """Events of a feature, in order."""

    def __init__(self, connection, services, *reads, version=None, wait_s=0.0):
        super().__init__(connection, services, reads, version)
        self.reported = []
        self.done.on_settled(lambda: self.reported.append("done"))
        self.send(self.requested(), wait_s=wait_s, min_bytes=1, max_bytes=1 << 20, read_committed=False)

    def _received(self, partitions):
        for read, response, is_refused, batches, records in partitions:
            if is_refused:
                self.reported.append((read.key.partition, ErrorCode.of(response.error_code)))
            else:
                self.reported.append((read.key.partition, [batch.last_offset for batch in batches], len(records)))
        self.reported.append("taken in")

    def _ended(self):
        self.reported.append("ended")


@pytest.fixture
def world() -> World:
    return World()


def read_of(topic, partition: int = 0, offset: int = 0, name: str | None = None) -> PartitionRead:
    return PartitionRead(
        ReadKey(topic.topic_id, partition, False), topic.name if name is None else name, offset, 5, 1 << 20
    )


def test_the_feature_gets_the_partitions_before_the_caller_and_other_readers_continue(world):
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    world.cluster.produce(topic, 2, 0)
    reading = Reading(world.connect(), world.services, read_of(topic, 0), read_of(topic, 1))
    size = len(topic.logs[0].batches[0][2])
    assert reading.reported == [(0, [1], size), (1, [], 0), "taken in", "done", "ended"]


def test_request_names_id_leader_epoch_and_no_session(world):
    topic = world.cluster.create("t")
    Reading(world.connect(), world.services, read_of(topic, offset=7), wait_s=0.25)
    (request,) = world.cluster.requests(1)
    (requested,) = request.topics[0].partitions
    assert request.topics[0].topic_id == topic.topic_id
    assert (requested.current_leader_epoch, requested.fetch_offset, requested.last_fetched_epoch) == (5, 7, -1)
    assert (request.max_wait_ms, request.session_id, request.session_epoch) == (250, 0, -1)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_topics_are_named_in_versions_without_topic_ids(world, version):
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    reading = Reading(world.connect(), world.services, read_of(topic), version=version)
    assert world.cluster.requests(1)[0].topics[0].topic == "t"
    assert reading.reported[0][:2] == (0, [0])


@pytest.mark.parametrize(("upstream", "requested"), [((4, 12), 12), ((4, 16), 16), ((4, 18), 17)])
def test_the_highest_useful_version_is_requested(upstream, requested):
    """The highest that every broker has, without versions that add nothing for a consumer."""
    versions = EffectiveVersions(Offer())
    versions.learn(1, {ApiKey.FETCH: upstream})
    assert fetch_version(versions) == requested


def test_before_a_broker_has_responded_topics_are_named_by_id():
    """All supported brokers have that version."""
    assert fetch_version(EffectiveVersions(Offer())) == 13


def test_read_under_way_is_the_connections_own(world):
    topic = world.cluster.create("t")
    connection = world.connect()
    reading = Reading(connection, world.services, read_of(topic), wait_s=0.5)
    assert Reading.of(connection) is reading
    assert Reading.of(world.connect()) is None
    world.timers.advance(0.5)
    assert Reading.of(connection) is None


def test_end_of_the_connection_frees_the_places(world):
    topic = world.cluster.create("t")
    connection = world.connect()
    reading = Reading(connection, world.services, read_of(topic), wait_s=0.5)
    connection.lose_upstream()
    assert isinstance(reading.failure, UpstreamLost)
    assert reading.reported == ["taken in", "done", "ended"]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_refusal_is_remembered_of_the_topic_or_of_the_right(world, code):
    topic = world.cluster.create("t")
    connection = world.connect()
    on_topics(connection, world.services, request_topics(connection, ["t"]).result())
    world.cluster.fail_next[1] = [code]
    reading = Reading(connection, world.services, read_of(topic))
    assert reading.reported[0] == (0, code)
    now = world.timers.now()
    refused = rights_of(connection).verdict(Right.READ_TOPIC, "t", now, 10.0) is False
    assert refused == (code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert world.services.topology.is_stale("t") == (code == ErrorCode.FENCED_LEADER_EPOCH)


def test_right_to_read_is_remembered(world):
    topic = world.cluster.create("t")
    connection = world.connect()
    Reading(connection, world.services, read_of(topic))
    assert rights_of(connection).verdict(Right.READ_TOPIC, "t", world.timers.now(), 10.0) is True


def test_nothing_is_remembered_of_a_topic_without_a_name(world):
    topic = world.cluster.create("t")
    connection = world.connect()
    Reading(connection, world.services, read_of(topic, name=""))
    assert rights_of(connection).verdict(Right.READ_TOPIC, "t", world.timers.now(), 10.0) is None


class Faulty(Reading):
    """Cannot store what was received."""

    def _received(self, partitions):
        super()._received(())
        raise ZeroDivisionError


def test_fault_while_storing_a_response_frees_the_reads_and_notifies_waiters(world):
    """The exception goes to the owner of the callback."""
    topic = world.cluster.create("t")
    connection = world.connect()
    reading = Faulty(connection, world.services, read_of(topic), wait_s=0.5)
    with pytest.raises(ZeroDivisionError):
        world.timers.advance(0.5)
    assert reading.reported == ["taken in", "done", "ended"]
    assert Faulty.of(connection) is None


def test_unsent_read_releases_its_partitions_and_fails_its_waiters(world):
    def fails(*_):
        raise ZeroDivisionError

    topic = world.cluster.create("t")
    connection = world.connect()
    connection.send_request = fails
    reading = Reading.__new__(Reading)
    with pytest.raises(ZeroDivisionError):
        reading.__init__(connection, world.services, read_of(topic))
    assert reading.reported == ["taken in", "done", "ended"]
    assert Reading.of(connection) is None
