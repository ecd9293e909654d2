"""A topic gets dead letters if it exists, allows them, and the proxy's identity may write it."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.loop.promise import on_its_own
from kafka_share_proxy.sharegroups.dead_letters.target_topics import NotWritable, TargetTopic, TargetTopics
from kafka_share_proxy.sharegroups.settings import DeadLetters
from kafka_share_proxy.wire.errors import ProxyError

from tests.support.letter_world import LetterWorld
from tests.support.scripted_cluster import ALL_BITS

PERMISSION = "errors.deadletterqueue.group.enable"


def checked(world: LetterWorld, name: str = "dlq.t", **settings: Any) -> TargetTopic:
    topics = TargetTopics(world.own, world.services.topology, world.timers, DeadLetters(**settings))
    lookup = on_its_own(topics.of(name))
    assert lookup.done
    return lookup.result()


def test_a_topic_that_a_pattern_allows_is_writable_on_brokers_before_4_4() -> None:
    assert checked(LetterWorld(partitions=3)) == TargetTopic("dlq.t", 3, 1 << 20)


def test_the_limit_of_a_batch_is_that_of_the_topic() -> None:
    assert checked(LetterWorld(configs={"max.message.bytes": "5000"})).batch_bytes == 5000


def test_a_topic_without_a_pattern_is_refused_with_the_setting_to_change() -> None:
    with pytest.raises(NotWritable, match=r"share_groups\.dead_letters\.topics"):
        checked(LetterWorld(), topics=("failed-*",))


@pytest.mark.parametrize(("value", "allowed"), [("true", True), ("false", False)])
def test_the_setting_of_the_topic_decides_where_brokers_have_it(value: str, allowed: bool) -> None:
    world = LetterWorld(configs={PERMISSION: value})
    if allowed:
        assert checked(world, topics=()).name == "dlq.t"
    else:
        with pytest.raises(NotWritable, match=f"set its {PERMISSION}=true"):
            checked(world, topics=("*",))


def test_a_missing_right_is_named() -> None:
    world = LetterWorld()
    world.cluster.topics["dlq.t"].bits = ALL_BITS & ~(1 << 4)
    with pytest.raises(NotWritable, match="no WRITE on topic"):
        checked(world)
    world.cluster.topics["dlq.t"].bits = 0
    with pytest.raises(NotWritable, match="no DESCRIBE on topic"):
        checked(world)


def test_a_missing_topic_is_not_created_by_default() -> None:
    world = LetterWorld(partitions=0)
    with pytest.raises(NotWritable, match="does not exist"):
        checked(world)
    assert world.created == []


def test_a_missing_topic_is_created_with_the_defaults_of_the_broker() -> None:
    world = LetterWorld(partitions=0)
    assert checked(world, auto_create_topics=True, topics=()).partitions == 1
    created = world.created[-1]
    assert (created.num_partitions, created.replication_factor) == (-1, -1)
    assert {each.name: each.value for each in created.configs} == {"message.timestamp.type": "CreateTime"}


def test_a_topic_created_where_brokers_have_the_permission_gets_it() -> None:
    world = LetterWorld(partitions=0, configs={PERMISSION: "true"})
    checked(world, auto_create_topics=True)
    (created,) = world.created
    assert {each.name: each.value for each in created.configs} == {
        "message.timestamp.type": "CreateTime",
        PERMISSION: "true",
    }


def test_a_name_without_the_prefix_is_not_created() -> None:
    world = LetterWorld(partitions=0)
    with pytest.raises(NotWritable, match="does not begin with dlq"):
        checked(world, "failed", auto_create_topics=True, topics=("*",))


def test_a_checked_topic_is_checked_again_after_a_while() -> None:
    world = LetterWorld()
    topics = TargetTopics(world.own, world.services.topology, world.timers, DeadLetters())
    for _ in range(3):
        on_its_own(topics.of("dlq.t")).result()
    assert world.cluster.count(3) == 1
    topics.forget("dlq.t")
    on_its_own(topics.of("dlq.t")).result()
    assert world.cluster.count(3) == 2
    world.timers.advance(31)
    on_its_own(topics.of("dlq.t")).result()
    assert world.cluster.count(3) == 3


def test_without_a_broker_the_check_fails() -> None:
    world = LetterWorld()
    world.own.refuses = "nothing responds"
    with pytest.raises(ProxyError, match="nothing responds"):
        checked(world)
