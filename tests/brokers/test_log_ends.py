"""Ends of logs are looked up when lag is read, with few requests."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers import log_ends
from kafka_share_proxy.brokers.log_ends import PERIOD_S, LogEnds

from tests.support.ports import World
from tests.support.scripted_cluster import Topic

METADATA, LIST_OFFSETS = 3, 2


@pytest.fixture
def world() -> World:
    share_world = World()
    member = share_world.member()
    member.heartbeat(0, ["elsewhere"])  # the brokers are known
    return share_world


@pytest.fixture
def topic(world: World) -> Topic:
    created_topic = world.cluster.create("t", leaders=(1, 2, 2))
    for partition, count in enumerate((10, 20, 30)):
        world.cluster.produce(created_topic, count, partition)
    return created_topic


def ends_of(world: World) -> LogEnds:
    return LogEnds(world.own, world.services.topology, world.timers.now)


def refresh(ends: LogEnds, topic: Topic | str, *partitions: int) -> None:
    name = topic if isinstance(topic, str) else topic.topic_id
    assert ends.refresh(lambda: [(name, each) for each in partitions]).done


def test_each_leader_gets_one_request_for_all_its_partitions(world: World, topic: Topic) -> None:
    ends = ends_of(world)
    refresh(ends, topic, 0, 1, 2)
    assert [ends.of(topic.topic_id, each) for each in range(3)] == [10, 20, 30]
    assert ends.of("t", 2) == 30
    assert world.cluster.count(LIST_OFFSETS) == 2
    assert ends.trouble == ""


def test_nothing_is_requested_again_within_the_period(world: World, topic: Topic) -> None:
    ends = ends_of(world)
    refresh(ends, topic, 0)
    world.cluster.produce(topic, 5)
    for _ in range(100):
        refresh(ends, topic, 0)
    assert world.cluster.count(LIST_OFFSETS) == 1
    assert ends.of("t", 0) == 10
    world.timers.advance(PERIOD_S)
    refresh(ends, topic, 0)
    assert ends.of("t", 0) == 15


def test_a_topic_by_name_is_found_and_one_that_does_not_exist_has_no_end(world: World, topic: Topic) -> None:
    ends = ends_of(world)
    refresh(ends, "t", 1)
    assert ends.of("t", 1) == 20
    world.timers.advance(PERIOD_S)
    refresh(ends, "no-such-topic", 0)
    assert ends.of("no-such-topic", 0) is None
    assert ends.of(topic.topic_id, 7) is None


def test_after_a_leader_change_the_end_stays_until_the_new_leader_returns_it(world: World, topic: Topic) -> None:
    ends = ends_of(world)
    refresh(ends, topic, 0)
    world.cluster.move_leader(topic, 3)
    world.cluster.produce(topic, 1)
    world.timers.advance(PERIOD_S)
    refresh(ends, topic, 0)
    assert ends.of("t", 0) == 10
    assert ends.trouble.startswith("t-0: ")
    world.timers.advance(PERIOD_S)
    refresh(ends, topic, 0)
    assert ends.of("t", 0) == 11
    assert ends.trouble == ""


def test_a_leader_that_does_not_respond_leaves_the_last_end_and_a_reason(world: World, topic: Topic) -> None:
    ends = ends_of(world)
    refresh(ends, topic, 0)
    world.own.refuses = "no route to host"
    world.timers.advance(PERIOD_S)
    refresh(ends, topic, 0)
    assert ends.of("t", 0) == 10
    assert "no route to host" in ends.trouble


def test_partitions_beyond_the_limits_are_left_out_or_divided(
    world: World, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ends, "PARTITIONS_AT_ONCE", 1)
    monkeypatch.setattr(log_ends, "PARTITIONS_MAX", 2)
    monkeypatch.setattr(log_ends, "REQUESTS_AT_ONCE", 1)
    ends = ends_of(world)
    refresh(ends, topic, 2, 1, 0)
    assert world.cluster.count(LIST_OFFSETS) == 2
    assert [ends.of("t", each) for each in range(3)] == [None, 20, 30]


def test_without_partitions_nothing_is_requested(world: World) -> None:
    before = world.cluster.count(METADATA)
    refresh(ends_of(world), "t")
    assert world.cluster.count(LIST_OFFSETS) == 0
    assert world.cluster.count(METADATA) == before


def test_without_an_own_identity_nothing_is_known(world: World, topic: Topic) -> None:
    ends = LogEnds(None, world.services.topology, world.timers.now)
    refresh(ends, topic, 0)
    assert ends.of("t", 0) is None
