"""Lag of groups that commit individually: end of the log - committed offset - offsets in ranges."""

from __future__ import annotations

import pytest
from kafka_share_proxy.brokers.log_ends import PERIOD_S
from kafka_share_proxy.commits import lag as commit_lag
from kafka_share_proxy.commits.lag import CommitLag, CommitLagSurvey
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import CommitWorld
from tests.support.steps import result_of


def survey(lag: CommitLag) -> CommitLagSurvey:
    assert lag.refresh().done
    return result_of(lag.survey())


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    topic = commit_world.world.cluster.create("t")
    commit_world.world.cluster.produce(topic, 100)
    return commit_world


def test_finished_ranges_are_no_lag(world: CommitWorld) -> None:
    world.begin(43, "45-47,50-50")
    assert survey(CommitLag(world.services)).by_group == {"g": 100 - 43 - 4}


def test_lag_is_zero_when_everything_is_finished_and_never_less(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    lag = CommitLag(world.services)
    held = world.services.held.groups["g"].state_of(TopicPartition("t", 0))
    held.learn_committed(100, -1)
    assert survey(lag).by_group == {"g": 0}
    held.learn_committed(120, -1)
    assert lag.of(TopicPartition("t", 0), held) == 0


def test_a_partition_without_a_committed_offset_has_no_lag(world: CommitWorld) -> None:
    world.services.held.group("g").state_of(TopicPartition("t", 0))
    lag_survey = survey(CommitLag(world.services))
    assert (lag_survey.by_group, lag_survey.unknown) == ({}, 0)


@pytest.mark.states("metadata")
async def test_after_a_takeover_the_lag_is_unknown_until_the_ranges_are_read(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    await world.restart()
    lag_survey = survey(CommitLag(world.services))
    assert (lag_survey.by_group, lag_survey.unknown) == ({}, 1)
    world.committed()
    assert survey(CommitLag(world.services)).by_group == {"g": 100 - 43 - 3}


def test_partitions_of_unknown_topics_and_beyond_the_limit_are_counted(
    world: CommitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin(43, "45-47")
    lag = CommitLag(world.services)
    world.services.held.group("g").state_of(TopicPartition("elsewhere", 0)).learn_committed(7, -1)
    assert survey(lag).unknown == 1
    monkeypatch.setattr(commit_lag, "SURVEYED_MAX", 0)
    world.world.timers.advance(PERIOD_S)
    assert survey(lag).unknown == 2
