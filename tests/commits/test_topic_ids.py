"""Commits to a topic that was deleted and created again inherit nothing of the deleted one."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.model.partition_commits import UNSEEN_MAX_S
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import PRODUCER, CommitWorld

AFTER_S = [0, 1, 3, 4, 6]
"""Seconds between recreation and commit; a cached topic id is believed for 5 s."""


@pytest.fixture(params=[True, False], ids=["fast path", "handler"])
def world(request: pytest.FixtureRequest) -> CommitWorld:
    return CommitWorld(fast_path=request.param)


def metadata_requests(world: CommitWorld) -> int:
    return world.cluster.count(ApiKey.METADATA)


@pytest.mark.parametrize("after_s", AFTER_S)
def test_commit_does_not_inherit_the_committed_offset_of_a_deleted_topic(world: CommitWorld, after_s: int) -> None:
    world.begin(500, "507-509")
    world.recreate_topic()
    world.timers.advance(after_s)
    assert world.commit(2, "ic/1;4-4").codes == [0]
    assert (world.primary()[0], world.ranges(), world.committed()) == (2, "4-4", (2, "ic/1;4-4"))


@pytest.mark.parametrize("text", ["ic/1;12-12", None])
def test_commit_is_not_moved_over_ranges_of_a_deleted_topic(world: CommitWorld, text: str | None) -> None:
    world.begin(5, "7-9")
    world.recreate_topic()
    assert world.commit(7, text).codes == [0]
    assert (world.primary()[0], world.ranges()) == (7, "12-12" if text else "")


async def test_new_owner_does_not_inherit_ranges_of_a_deleted_topic(world: CommitWorld) -> None:
    """The cached topic id may be the old one although the ranges were just loaded."""
    world.begin(5, "7-9")
    await world.restart()
    world.recreate_topic()
    assert world.commit(7, "ic/1;12-12").codes == [0]
    assert (world.primary()[0], world.ranges()) == (7, "12-12")


def test_other_partitions_of_the_request_lose_the_ranges_of_the_deleted_topic_too(world: CommitWorld) -> None:
    world.begin(500, "507-509")
    assert world.commit(20, "ic/1;22-25", partition=1).codes == [0]
    world.recreate_topic()
    assert world.commit_many([("t", 0, 2, "ic/1;4-4"), ("t", 1, 20, "ic/1;30-30"), ("u", 0, 1, "")]).codes == [0, 0, 0]
    assert (world.primary()[0], world.ranges()) == (2, "4-4")
    assert (world.primary(partition=1)[0], world.ranges(partition=1)) == (20, "30-30")


@pytest.mark.states("topic", "metadata")
def test_offset_fetch_shows_no_ranges_of_a_deleted_topic(world: CommitWorld) -> None:
    """Also where the same offset was committed for the recreated topic past the proxy."""
    world.begin(5, "7-9")
    committed = dict(world.coordinator.committed)
    world.recreate_topic()
    world.coordinator.committed.update(committed)
    assert world.committed() == (5, "")
    assert world.topic_ranges() == ""


@pytest.mark.parametrize("text", ["ic/1;12-12", None])
def test_transaction_does_not_inherit_ranges_of_a_deleted_topic(world: CommitWorld, text: str | None) -> None:
    world.begin(5, "7-9")
    world.recreate_topic()
    assert world.commit_in_transaction(7, text).codes == [0]
    pending = world.coordinator.pending["g", "t", 0][1]
    assert (pending.offset, pending.metadata) == (7, text or "")
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (7, text or "")


def test_transaction_that_outlives_its_topic_is_to_be_aborted(world: CommitWorld) -> None:
    """Its earlier ranges are about offsets of the deleted topic, and the coordinator keeps its last commit only."""
    world.begin(5)
    assert world.commit_in_transaction(5, "ic/1;7-9").codes == [0]
    world.recreate_topic()
    assert world.commit_in_transaction(7, "ic/1;12-12").codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.timers.advance(UNSEEN_MAX_S)
    assert world.commit_in_transaction(7, "ic/1;12-12").codes == [ErrorCode.ILLEGAL_GENERATION]


def test_topic_id_is_verified_only_where_the_committed_offset_is_moved(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    before = metadata_requests(world)
    assert world.commit(43, "ic/1;50-50").codes == [0]
    assert world.commit(44).codes == [0]
    assert metadata_requests(world) == before
    assert world.commit(44, "ic/1;44-44").codes == [0]
    assert (world.primary()[0], metadata_requests(world)) == (48, before + 1)


def test_commit_with_a_topic_id_is_left_to_the_coordinator_to_judge(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    before = metadata_requests(world)
    assert world.commit(43, "ic/1;43-44", version=10).codes == [0]
    assert (world.primary()[0], metadata_requests(world)) == (48, before)


def test_commit_that_would_be_moved_is_refused_while_the_topic_does_not_exist(world: CommitWorld) -> None:
    world.begin(43, "45-47")
    del world.cluster.topics["t"]
    assert world.commit(43, "ic/1;43-44").codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.primary()[0] == 43
