"""OffsetDelete: the ranges of a partition end with its committed offset."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_DELETE, CommitWorld, Sent


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    commit_world.begin(43, "45-47")
    commit_world.commit(7, "ic/1;9-9", partition=1)
    return commit_world


def delete(world: CommitWorld, group: str = "g") -> Sent:
    request = registry.message("OffsetDeleteRequest")
    partitions = [request.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [request.OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    return world.send(OFFSET_DELETE, 0, request(group_id=group, topics=topics))


def test_ranges_end_with_the_offset_and_those_of_other_partitions_stay(world: CommitWorld) -> None:
    assert delete(world).response.error_code == 0
    assert (world.ranges(), world.ranges(partition=1)) == ("", "9-9")
    assert world.commit(20, "ic/1;30-30").codes == [0]
    assert (world.primary()[0], world.ranges()) == (20, "30-30")


def test_group_without_ranges_is_the_brokers(world: CommitWorld) -> None:
    assert delete(world, "other").response.error_code == 0
    assert "other" not in world.services.held.groups


def test_while_the_state_is_away_the_group_is_refused(world: CommitWorld) -> None:
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "away")
    sent = delete(world)
    world.timers.advance(3)
    assert sent.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
