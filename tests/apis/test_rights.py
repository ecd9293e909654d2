"""What a connection may do, as its own broker says; remembered there for a while (decision 15)."""

from __future__ import annotations

import pytest

from proxy.apis import rights
from proxy.errors import ErrorCode, UpstreamLost
from proxy.wire import registry
from tests.support.ports import World, acquired, entries

EARLIEST = {"share_auto_offset_reset": "earliest"}


@pytest.fixture
def world() -> World:
    made = World()
    made.configure("g", **EARLIEST)
    return made


def test_no_right_on_the_topic(world):
    """29 per partition; the other topic is served."""
    secret, public = world.cluster.create("secret"), world.cluster.create("public")
    secret.bits = 1 << 8
    world.cluster.produce(secret, 3)
    world.cluster.produce(public, 3)
    answer = world.member().fetch(secret, public)
    assert entries(answer)[secret.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert acquired(answer, public) == [(0, 2, 1)]


def test_cache_is_served_only_where_read_is_allowed(world):
    """What one member's connection read is not given to another that may not read the topic."""
    topic = world.cluster.create("t")
    for _ in range(4):
        world.cluster.produce(topic, 1)
    assert acquired(world.member(member_id="a").fetch(topic, max_records=1)) == [(0, 0, 1)]
    topic.bits = 1 << 8
    answer = world.member(member_id="b").fetch(topic, max_records=1)
    assert entries(answer)[topic.topic_id, 0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_rights_are_asked_once_and_again_after_their_time(world):
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
    """A broker that hangs up at our question ends the request: nothing is answered on our own account."""

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
    """At the limit the older half goes; what was asked for again is not old."""
    monkeypatch.setattr(rights, "VERDICTS_MAX", 4)
    remembered = rights.Rights()
    for name in ("a", "b", "c", "d", "a", "e"):
        remembered.remember(rights.Right.READ_GROUP, name, True, 1.0)
    known = [n for n in "abcde" if remembered.verdict(rights.Right.READ_GROUP, n, 1.0, 15.0) is not None]
    assert known == ["a", "d", "e"]
