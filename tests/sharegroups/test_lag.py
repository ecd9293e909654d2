"""Lag of share groups: end of the log - start offset - settled offsets after it (KIP-1226)."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.brokers.log_ends import PERIOD_S
from kafka_share_proxy.sharegroups import lag as share_lag
from kafka_share_proxy.sharegroups.lag import LagSurvey, ShareLag
from kafka_share_proxy.sharegroups.model.coordinator import ShareKey

from tests.support.ports import World
from tests.support.steps import result_of

ACCEPT, RELEASE, REJECT = 1, 2, 3


@pytest.fixture
def world() -> World:
    share_world = World()
    share_world.configure("g", share_auto_offset_reset="earliest")
    share_world.services.coordinator.add_group("g")
    return share_world


def survey(lag: ShareLag) -> LagSurvey:
    assert lag.refresh().done
    return result_of(lag.survey())


def described_lag(world: World, topic: Any) -> int:
    request = world.send_request(90, 1, groups=[described_group(topic)], connection=world.connect(topic.logs[0].leader))
    return int(request.groups[0].topics[0].partitions[0].lag)


def described_group(topic: Any) -> Any:
    from kafka_share_proxy.wire.definitions import messages

    message = messages.DescribeShareGroupOffsetsRequest
    topic_request = message.DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[0])
    return message.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic_request])


def test_lag_is_that_of_describe_share_group_offsets(world: World) -> None:
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 1, [ACCEPT]), (4, 5, [REJECT]), (6, 6, [RELEASE])]})
    world.cluster.produce(topic, 3)
    assert survey(ShareLag(world.services)).by_group == {"g": 9}
    assert described_lag(world, topic) == 9


def test_lag_is_known_before_any_delivery_has_ended(world: World) -> None:
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 10)
    world.member().fetch(topic)
    assert survey(ShareLag(world.services)).by_group == {"g": 10}


def test_lag_of_a_group_without_members_grows_while_its_share_partitions_rest(world: World) -> None:
    topic = world.cluster.create("t", leaders=(1, 2))
    world.cluster.produce(topic, 10)
    member = world.member()
    member.fetch(topic)
    member.acknowledge({(topic.topic_id, 0): [(0, 9, [ACCEPT])]})
    member.connection.close()
    coordinator = world.services.coordinator
    for _ in range(2):
        coordinator.rest_idle()
    lag, resting = ShareLag(world.services), coordinator.resting
    assert resting
    assert survey(lag).by_group == {"g": 0}
    world.cluster.produce(topic, 25)
    world.timers.advance(PERIOD_S)
    assert survey(lag).by_group == {"g": 25}
    assert coordinator.resting == resting


def test_lag_sums_over_partitions_and_counts_those_without_a_known_end(world: World) -> None:
    topic = world.cluster.create("t", leaders=(1, 2))
    for partition in (0, 1):
        world.cluster.produce(topic, 10, partition)
    world.member().fetch((topic, 0))
    world.member("g", "m2", 2).fetch((topic, 1))
    unknown = ShareKey("g", b"x" * 16, 0)
    world.services.coordinator.add_share(unknown, world.services.coordinator.new_partition(unknown, 0), 1)
    lag_survey = survey(ShareLag(world.services))
    assert lag_survey.by_group == {"g": 20}
    assert lag_survey.unknown == {"g": 1}


def test_a_truncated_log_has_no_negative_lag(world: World) -> None:
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 5)
    world.member().fetch(topic)
    key = ShareKey("g", topic.topic_id, 0)
    world.services.coordinator.remove_share(key)
    world.services.coordinator.add_share(key, world.services.coordinator.new_partition(key, 100), 1)
    assert survey(ShareLag(world.services)).by_group == {"g": 0}


def test_share_partitions_beyond_the_limit_have_no_known_lag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_lag, "SURVEYED_MAX", 1)
    topic = world.cluster.create("t", leaders=(1, 1))
    world.member().fetch((topic, 0), (topic, 1))
    lag_survey = survey(ShareLag(world.services))
    assert lag_survey.unknown == {"g": 1}
    assert lag_survey.by_group == {"g": 0}
