"""Rights of a connection, as its own broker reports them, cached for a while."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from kafka_share_proxy.brokers import rights
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode, UpstreamLost

from tests.support.ports import World, acquired, entries
from tests.support.scripted_cluster import Connection
from tests.support.share_steps import from_the_start


@pytest.fixture
def world() -> World:
    return from_the_start(World())


def test_no_right_on_the_topic(world):
    """29 per partition; the other topic is served."""
    secret, public = world.cluster.create("secret"), world.cluster.create("public")
    secret.bits = 1 << 8
    world.cluster.produce(secret, 3)
    world.cluster.produce(public, 3)
    response = world.member().fetch(secret, public)
    assert entries(response)[secret.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert acquired(response, public) == [(0, 2, 1)]


def test_cache_is_served_only_where_read_is_allowed(world):
    """Records read over one member's connection are not given to another that may not read the topic."""
    topic = world.cluster.create("t")
    for _ in range(4):
        world.cluster.produce(topic, 1)
    assert acquired(world.member(member_id="a").fetch(topic, max_records=1)) == [(0, 0, 1)]
    topic.bits = 1 << 8
    response = world.member(member_id="b").fetch(topic, max_records=1)
    assert entries(response)[topic.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_rights_are_queried_once_and_again_after_their_time(world):
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    for _ in range(5):
        member.fetch(wait_ms=0)
    assert (world.cluster.count(12), world.cluster.count(3)) == (1, 1)
    world.timers.advance(15.1)
    world.cluster.group_errors["g"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert member.fetch(wait_ms=0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_other_brokers_than_the_coordinator_judge_too(world):
    """16 of the Heartbeat probe means that READ is granted."""
    world.cluster.create("t")
    world.cluster.group_errors["g"] = ErrorCode.NOT_COORDINATOR
    assert world.member().heartbeat(0, ["t"]).error_code == 0


def test_unauthenticated_connection_gets_nothing(world):
    """A broker that closes the connection at our request ends the client's request: nothing is served."""

    world.cluster.create("t")
    world.cluster.held.add(12)
    member = world.member()
    message = registry.message("ShareGroupHeartbeatRequest")
    request = message(group_id="g", member_id="m1", member_epoch=0, subscribed_topic_names=["t"])
    reply = world.send(member.connection, 76, 1, request)
    member.connection.lose_upstream()
    with pytest.raises(UpstreamLost):
        _ = reply.message


def test_oldest_rights_are_forgotten_first(monkeypatch):
    """At the limit the older half is evicted; a refreshed right is not old."""
    monkeypatch.setattr(rights, "VERDICTS_BYTES_MAX", 4 * (rights.VERDICT_BYTES + 4))
    remembered = rights.Rights()
    for name in ("a", "b", "c", "d", "a", "e"):
        remembered.remember(rights.Right.READ_GROUP, name, True, 1.0)
    known = [n for n in "abcde" if remembered.verdict(rights.Right.READ_GROUP, n, 1.0, 15.0) is not None]
    assert known == ["a", "e"]


def test_rights_are_bounded_in_bytes():
    """A group id may have 32 KiB: as many rights as usual names leave room for would be 320 MiB on each connection."""
    remembered = rights.Rights()
    tracemalloc.start()
    try:
        for number in range(500):
            remembered.remember(rights.Right.READ_GROUP, f"{number:032767}", True, 1.0)
        assert tracemalloc.get_traced_memory()[0] < rights.VERDICTS_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert remembered.bytes == sum(rights.VERDICT_BYTES + 4 * len(name) for _, name in remembered.verdicts)


NO_RESPONSE = [-1, 7, 14, 15, 22, 27, 31, 41, 69, 30_137]
"""Codes that neither grant nor refuse: of an authorizer that throws, of another request, of a newer Kafka."""


def _heartbeat(world: World, connection: Connection) -> int:
    member = world.member(member_id="new")
    member.connection = connection
    return int(member.heartbeat(0, ["t"]).error_code)


def _fetch(world: World, connection: Connection) -> int:
    member = world.member(member_id="new")
    member.connection = connection
    return int(member.fetch(world.cluster.topics["t"], wait_ms=0).error_code)


def _acknowledge(world: World, connection: Connection) -> int:
    member = world.member(member_id="new")
    member.connection = connection
    return int(member.acknowledge({}, epoch=1).error_code)


def _alter(world: World, connection: Connection) -> int:
    return int(world.send_request(91, 0, connection, group_id="other", topics=[]).error_code)


Query = Callable[[World, Connection], int]


@pytest.mark.parametrize("send_request", [_heartbeat, _fetch, _acknowledge, _alter])
@pytest.mark.parametrize("code", NO_RESPONSE)
def test_read_is_not_granted_by_a_code_that_says_nothing_of_it(world: World, code: int, send_request: Query) -> None:
    """The code itself is the refusal, and the right is queried again with the next request."""
    world.cluster.create("t")
    world.cluster.group_responses[12] = code
    connection = world.connect()
    assert send_request(world, connection) == code
    assert send_request(world, connection) == code
    assert world.cluster.count(12) == 2
    del world.cluster.group_responses[12]
    assert send_request(world, connection) in (0, ErrorCode.SHARE_SESSION_NOT_FOUND)


@pytest.mark.parametrize("code", [0, 16, 24, 25])
def test_read_is_granted_by_codes_that_brokers_return_after_their_authorizer(world: World, code: int) -> None:
    world.cluster.create("t")
    world.cluster.group_responses[12] = code
    assert _heartbeat(world, world.connect()) == 0


def _describe(world: World, connection: Connection) -> int:
    return int(world.send_request(77, 1, connection, group_ids=["g"]).groups[0].error_code)


def _describe_offsets(world: World, connection: Connection) -> int:
    group = registry.message("DescribeShareGroupOffsetsRequest").DescribeShareGroupOffsetsRequestGroup
    expected = [group(group_id="g", topics=None)]
    return int(world.send_request(90, 1, connection, groups=expected).groups[0].error_code)


@pytest.mark.parametrize("send_request", [_describe, _describe_offsets])
@pytest.mark.parametrize("code", [-1, 14, 16, 24, 69, 30_137])
def test_describe_is_not_granted_by_a_code_that_says_nothing_of_it(
    world: World, code: int, send_request: Query
) -> None:
    world.cluster.create("t")
    world.member().heartbeat(0, ["t"])
    world.cluster.group_responses[10] = code
    connection = world.connect()
    assert [send_request(world, connection), send_request(world, connection)] == [code, code]
    for granted in (15, 0):
        world.cluster.group_responses[10] = granted
        assert send_request(world, world.connect()) == 0


@pytest.mark.parametrize("code", [-1, 14, 15, 25, 30_137])
def test_delete_is_not_granted_by_a_code_that_says_nothing_of_it(world: World, code: int) -> None:
    """DeleteShareGroupOffsets; DeleteGroups is in test_k42_delete_groups.py."""
    world.cluster.create("t")
    member = world.member()
    member.heartbeat(0, ["t"])
    member.heartbeat(-1)
    for responded, expected in ((code, code), (30, 30), (0, 0), (16, 0), (69, 0), (68, 0)):
        world.cluster.group_responses[47] = responded
        assert world.send_request(92, 0, group_id="g", topics=[]).error_code == expected


@pytest.mark.parametrize("code", [-1, 7, 30_137])
def test_a_topic_is_not_shown_by_a_code_that_says_nothing_of_it(world: World, code: int) -> None:
    """Another client's connection knows the topic; what this one's broker says of it is passed on."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.member().heartbeat(0, ["t"])
    world.member().fetch(topic, wait_ms=0)
    world.timers.advance(1)
    world.cluster.topic_errors["t"] = code
    assert _heartbeat(world, world.connect()) == code
    assert _describe(world, world.connect()) == code
    (group,) = world.send_request(90, 1, groups=[_offsets_of("g", "t")]).groups
    assert group.topics[0].partitions[0].error_code == code
    fetched = entries(world.member(member_id="new").fetch(topic, wait_ms=0))[topic.topic_id, 0]
    assert (fetched.error_code, fetched.acquired_records) == (-1, [])  # the Java client throws on others


def _offsets_of(group_id: str, topic: str) -> Any:
    message = registry.message("DescribeShareGroupOffsetsRequest")
    expected = message.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])
    return message.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=[expected])


@pytest.mark.parametrize("key", [1, 2])
def test_an_unknown_error_closes_no_connection(world: World, key: int) -> None:
    """Fetch and ListOffsets of a newer broker: the client gets -1, which it can handle."""
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 1)
    world.cluster.fail_next[key] = [ErrorCode.of(30_137)] * 10
    entry = entries(world.member().fetch(topic, wait_ms=0))[topic.topic_id, 0]
    assert entry.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    world.cluster.fail_next[key] = []
    assert acquired(world.member(member_id="later").fetch(topic)) == [(0, 0, 1)]
