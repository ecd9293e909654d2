"""States of the partitions of a session."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.sharegroups.fetch.session_survey import Result, Survey, survey
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicIdPartition

from tests.support.ports import World, acquired


@pytest.fixture
def world() -> World:
    share_world = World()
    share_world.configure("g", share_auto_offset_reset="earliest")
    return share_world


def surveyed(*arguments: Any, **options: Any) -> Survey:
    """Survey in one go."""
    task: Task[Survey] = Task(survey(*arguments, **options), lambda _: None)
    task.start()
    assert task.finished
    if task.error is not None:
        raise task.error
    assert task.value is not None
    return task.value


def partitions_of(topic, count):
    return [TopicIdPartition(topic.topic_id, partition) for partition in range(count)]


def test_every_partition_is_in_one_list(world):
    """Ready, missing, unstarted, or with an error."""
    topic = world.cluster.create("t", leaders=(1, 1, 1, 2))
    for _ in range(2):
        world.cluster.produce(topic, 1, 0)
    member = world.member()
    assert acquired(member.fetch((topic, 0), (topic, 1), max_records=1)) == [(0, 0, 1)]
    results: dict[TopicIdPartition, Result] = {}
    session_survey = surveyed(member.connection, world.services, "g", partitions_of(topic, 6), results)
    assert [(item.partition.partition, item.offset) for item in session_survey.ready] == [(0, 1)]
    assert [(place.partition, offset) for place, _, offset in session_survey.missing] == [(1, 0)]
    assert [place.partition for place in session_survey.unstarted] == [2]
    assert {place.partition: result.error for place, result in results.items()} == {
        3: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        4: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_errors_stay(world):
    """A partition that has an error in this request is not looked at again."""
    topic = world.cluster.create("t")
    member = world.member()
    member.fetch(topic, wait_ms=0)
    results = {TopicIdPartition(topic.topic_id, 0): Result(error=ErrorCode.CORRUPT_MESSAGE)}
    session_survey = surveyed(member.connection, world.services, "g", partitions_of(topic, 1), results)
    assert (session_survey.ready, session_survey.missing, session_survey.unstarted) == ([], [], [])
    assert results[topic.topic_id, 0].error == ErrorCode.CORRUPT_MESSAGE


def test_full_window_is_left_out(world):
    world.configure("g", share_partition_max_record_locks="100")
    topic = world.cluster.create("t")
    world.cluster.produce(topic, 100)
    member = world.member()
    member.fetch(topic)
    session_survey = surveyed(member.connection, world.services, "g", partitions_of(topic, 1), {})
    assert (session_survey.ready, session_survey.missing, session_survey.unstarted) == ([], [], [])


@pytest.mark.parametrize(("enough", "ready"), [(1, [0]), (7, [0]), (8, [0, 1]), (17, [0, 1]), (18, [0, 1, 2])])
def test_a_survey_ends_with_the_partition_that_makes_it_enough(world, enough, ready):
    """Each of the three has ten records; three of the first are acquired."""
    topic = world.cluster.create("t", leaders=(1, 1, 1))
    for partition in range(3):
        for _ in range(10):
            world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch(*((topic, partition) for partition in range(3)), max_records=3)
    session_survey = surveyed(member.connection, world.services, "g", partitions_of(topic, 4), {}, enough=enough)
    assert [item.partition.partition for item in session_survey.ready] == ready
    assert session_survey.is_partial


def test_records_beyond_the_window_are_not_enough(world):
    """The second partition is surveyed, too, since the first one has room for a single record."""
    world.configure("g", share_partition_max_record_locks="100")
    topic = world.cluster.create("t", leaders=(1, 1))
    for partition in range(2):
        for _ in range(200):
            world.cluster.produce(topic, 1, partition)
    member = world.member()
    member.fetch((topic, 0), (topic, 1), max_records=99)
    session_survey = surveyed(member.connection, world.services, "g", partitions_of(topic, 2), {}, enough=50)
    assert [item.partition.partition for item in session_survey.ready] == [0, 1]
