"""DeleteGroups: the ranges of a group end with it, and those of no other."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import DELETE_GROUPS, CommitWorld


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    commit_world.begin(43, "45-47")
    commit_world.begin(7, "9-9", group="other")
    return commit_world


def delete(world: CommitWorld, *names: str) -> dict[str, int]:
    request = registry.message("DeleteGroupsRequest")(groups_names=list(names))
    response = world.send(DELETE_GROUPS, 2, request).response
    return {result.group_id: result.error_code for result in response.results}


def test_a004_17_ranges_of_a_deleted_group_are_deleted(world: CommitWorld) -> None:
    world.commit(5, group="plain")
    assert delete(world, "plain", "g") == {"plain": 0, "g": 0}
    assert (world.ranges(), world.ranges("other")) == ("", "9-9")
    assert not world.is_marked()
    assert world.is_marked("other")
    assert "g" not in world.services.held.groups
    assert world.commit(43, "ic/1;50-50").codes == [0]
    assert world.committed() == (43, "ic/1;50-50")


def test_group_that_the_broker_does_not_delete_keeps_its_ranges(world: CommitWorld) -> None:
    world.coordinator.refuse = ErrorCode.NON_EMPTY_GROUP
    assert delete(world, "g") == {"g": ErrorCode.NON_EMPTY_GROUP}
    assert world.ranges() == "45-47"


def test_ranges_that_could_not_be_deleted_are_dropped_when_the_broker_is_queried(world: CommitWorld) -> None:
    world.journal.slow = True
    request = registry.message("DeleteGroupsRequest")(groups_names=["g"])
    sent = world.send(DELETE_GROUPS, 2, request)
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [result.error_code for result in sent.response.results] == [0]
    world.journal.slow = False
    assert world.commit(44, "ic/1;50-50").codes == [0]
    assert (world.primary()[0], world.ranges()) == (44, "50-50")


def test_refusal_names_every_group(world: CommitWorld) -> None:
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "away")
    request = registry.message("DeleteGroupsRequest")(groups_names=["g"])
    sent = world.send(DELETE_GROUPS, 2, request)
    world.timers.advance(3)
    assert [(result.group_id, result.error_code) for result in sent.response.results] == [("g", 15)]
