"""Groups whose offsets have expired at the brokers: their ranges go, when it is certain and not before."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.commits.expired_ranges import CHECK_EVERY_S, ExpiredGroups
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import Committed, CommitWorld

OFFSET_FETCH = 9
pytestmark = pytest.mark.states("topic", "overflow")


@pytest.fixture
def world() -> CommitWorld:
    """Two groups with ranges, and the collector."""
    commit_world = CommitWorld()
    for group in ("g", "kept"):
        commit_world.begin(43, "45-47", group=group)
    ExpiredGroups(commit_world.services).start()
    return commit_world


def expire(world: CommitWorld, group: str = "g") -> None:
    """The brokers forget what the group has committed."""
    for place in [place for place in world.coordinator.committed if place[0] == group]:
        del world.coordinator.committed[place]


def looks(world: CommitWorld, count: int) -> None:
    for _ in range(count):
        world.timers.advance(CHECK_EVERY_S)


def test_ranges_of_a_group_without_offsets_go_after_two_checks(world: CommitWorld) -> None:
    looks(world, 3)
    assert world.ranges() == "45-47"
    expire(world)
    looks(world, 1)
    assert (world.ranges(), world.is_marked()) == ("45-47", True), "one look proves nothing"
    looks(world, 1)
    assert (world.ranges(), world.is_marked()) == ("", False)
    assert list(world.services.held.groups) == ["kept"]
    assert (world.ranges("kept"), world.is_marked("kept")) == ("45-47", True)
    ((_, context),) = [note for note in world.world.notes if note[0] == "ranges-of-group-ended"]
    assert context == {"group": "g", "ranges": 1}


def test_group_that_commits_again_between_two_checks_keeps_its_ranges(world: CommitWorld) -> None:
    expire(world)
    looks(world, 1)
    assert world.commit(43, "ic/1;50-51").codes == [0]
    looks(world, 3)
    assert "50-51" in world.ranges()


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NOT_COORDINATOR])
def test_group_that_may_not_be_seen_stays(world: CommitWorld, code: ErrorCode) -> None:
    """A principal without DESCRIBE cannot conclude that the group is gone."""
    expire(world)
    response = world.coordinator.respond

    def refused(key: int, version: int, request: Any) -> Any:
        context = response(key, version, request)
        for group in context.groups if key == OFFSET_FETCH and version >= 8 else ():
            group.error_code, group.topics = code, []
        return context

    world.cluster.respond_unscripted = refused
    looks(world, 4)
    assert world.ranges() == "45-47"


def test_topic_that_may_not_be_seen_stays(world: CommitWorld) -> None:
    expire(world)
    response = world.coordinator.respond

    def refused(key: int, version: int, request: Any) -> Any:
        context = response(key, version, request)
        for group in context.groups if key == OFFSET_FETCH and version >= 8 else ():
            for entry in (entry for topic in group.topics for entry in topic.partitions):
                entry.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return context

    world.cluster.respond_unscripted = refused
    looks(world, 4)
    assert world.ranges() == "45-47"


def test_brokers_that_do_not_respond_remove_nothing(world: CommitWorld) -> None:
    expire(world)
    looks(world, 1)
    world.world.own.refuses = "away"
    looks(world, 3)
    assert world.ranges() == "45-47"
    assert any(note[0] == "ranges-not-checked" for note in world.world.notes)
    world.world.own.refuses = None
    looks(world, 2)
    assert world.ranges() == ""


def test_group_of_another_owner_is_left_alone(world: CommitWorld) -> None:
    expire(world)
    world.services.gate.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moved")
    looks(world, 3)
    assert world.ranges() == "45-47"


def test_transaction_that_may_be_open_keeps_its_group(world: CommitWorld) -> None:
    """Nothing is committed of it yet."""
    assert world.commit_in_transaction(10, "ic/1;12-13", group="new").codes == [0]
    looks(world, 3)
    assert world.is_marked("new")


def test_marker_of_a_group_without_ranges_is_deleted_too(world: CommitWorld) -> None:
    assert world.commit(10, "ic/1;10-13", group="done").codes == [0]
    assert (world.ranges("done"), world.is_marked("done")) == ("", True)
    looks(world, 3)
    assert world.is_marked("done")
    expire(world, "done")
    looks(world, 2)
    assert not world.is_marked("done")


def test_all_groups_are_checked_in_order(world: CommitWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_share_proxy.commits.expired_ranges.GROUPS_PER_ROUND", 1)
    for group in ("a", "z"):
        world.begin(43, "45-47", group=group)
        expire(world, group)
    looks(world, 8)
    assert sorted(world.services.held.groups) == ["g", "kept"]


def test_group_of_many_partitions_is_queried_in_parts(world: CommitWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_share_proxy.commits.expired_ranges.PARTITIONS_PER_REQUEST", 2)
    for partition in range(4):
        assert world.commit(5, "ic/1;7-9", group="wide", partition=partition).codes == [0]
    expire(world, "wide")
    world.coordinator.committed["wide", "t", 3] = Committed(5)
    looks(world, 3)
    assert world.ranges("wide", 3) == "7-9", "one of them has an offset yet"
    expire(world, "wide")
    looks(world, 2)
    assert [world.ranges("wide", partition) for partition in range(4)] == [""] * 4
    assert not world.is_marked("wide")


@pytest.mark.parametrize("is_whole", [True, False], ids=["the group", "a partition"])
def test_what_ends_while_a_group_is_queried_in_parts_is_left_out(
    world: CommitWorld, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    monkeypatch.setattr("kafka_share_proxy.commits.expired_ranges.PARTITIONS_PER_REQUEST", 1)
    for partition in range(2):
        assert world.commit(5, "ic/1;7-9", group="wide", partition=partition).codes == [0]
    expire(world, "wide")
    world.cluster.held = {OFFSET_FETCH}
    looks(world, 1)
    groups = world.services.held.groups
    if is_whole:
        del groups["wide"]  # another owner has it
    else:
        groups["wide"].partitions.clear()  # OffsetDelete
    world.cluster.release()
    world.cluster.release()
    looks(world, 3)
    assert "wide" not in groups
