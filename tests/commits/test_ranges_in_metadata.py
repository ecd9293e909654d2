"""Ranges in the brokers' commit metadata (commits/README.md rules 26 to 33), at one owner and over takeovers."""

from __future__ import annotations

import pytest
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import OFFSET_COMMIT, PRODUCER, Committed, CommitWorld

pytestmark = pytest.mark.states("metadata")


@pytest.fixture(params=[True, False], ids=["fast path", "handler"])
def world(request: pytest.FixtureRequest) -> CommitWorld:
    """A group with a text at the broker, and no record of a range."""
    commit_world = CommitWorld(fast_path=request.param)
    commit_world.begin(43, "45-47,50-50")
    return commit_world


def limit(world: CommitWorld, characters: int) -> None:
    """Set the limit of the broker, which the proxy knows."""
    world.coordinator.metadata_max = world.services.limit.characters = characters


def test_commit_is_one_request_with_the_merged_text_and_no_append(world: CommitWorld) -> None:
    world.journal.slow = True
    sent = world.cluster.count(OFFSET_COMMIT)
    assert world.commit(43, "ic/1;60-61").codes == [0]
    assert world.journal.appends == []
    assert (world.cluster.count(OFFSET_COMMIT), world.topic_ranges()) == (sent + 1, "")
    assert world.broker() == (43, "ic/1;45-47,50-50,60-61")
    assert world.commit(43, "ic/1;43-44").codes == [0]
    assert world.broker() == (48, "ic/1;50-50,60-61")


@pytest.mark.parametrize(
    ("metadata", "stored"),
    [(None, ""), ("mine; own", ";u=mine; own"), ("mine\0", ";u=mine\0"), ("ic/x;1", ";u=ic/x;1"), ("ü", ";u=ü")],
)
def test_plain_commit_carries_the_ranges_next_to_its_own_metadata(
    world: CommitWorld, metadata: str | None, stored: str
) -> None:
    assert world.commit(44, metadata).codes == [0]
    assert world.broker() == (44, f"ic/1;45-47,50-50{stored}")
    assert world.committed() == (44, f"ic/1;45-47,50-50{stored}")
    assert world.commit(51, metadata).codes == [0]
    assert world.broker() == (51, metadata or "")


def test_first_text_of_a_partition_stores_the_topic_id_before_the_response(world: CommitWorld) -> None:
    world.commit(7, "x", partition=1)
    world.journal.slow = True
    first = world.commit(7, "ic/1;9-9", partition=1)
    assert world.broker(partition=1) == (7, "ic/1;9-9")
    assert not first.has_response
    world.journal.confirm()
    assert first.codes == [0]
    assert world.topic_ranges(partition=1) == ""
    assert world.commit(7, "ic/1;12-12", partition=1).codes == [0]


def test_topic_id_that_cannot_be_stored_is_15_and_stored_with_the_repetition(world: CommitWorld) -> None:
    world.commit(7, "x", partition=1)
    world.journal.slow = True
    first = world.commit(7, "ic/1;9-9", partition=1)
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert first.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    again = world.commit(7, "ic/1;9-9", partition=1)
    assert not again.has_response
    while world.journal.appends:
        world.journal.confirm()
    assert again.codes == [0]


async def test_takeover_reads_the_ranges_by_offset_fetch(world: CommitWorld) -> None:
    await world.restart()
    assert world.committed() == (43, "ic/1;45-47,50-50")
    assert world.commit(43, "ic/1;43-44").codes == [0]
    assert world.broker() == (48, "ic/1;50-50")


# Ranges that do not fit


def test_ranges_without_room_are_in_the_topic_before_the_commit_that_drops_them(world: CommitWorld) -> None:
    limit(world, 24)
    world.journal.slow = True
    sent = world.commit(43, "ic/1;60-60,70-70")
    assert world.broker() == (43, "ic/1;45-47,50-50"), "not forwarded yet"
    world.journal.confirm()
    assert sent.codes == [0]
    assert (world.broker(), world.topic_ranges()) == ((43, "ic/1;60-60,70-70"), "45-47,50-50")
    assert world.committed() == (43, "ic/1;45-47,50-50,60-60,70-70")


def test_commit_is_not_forwarded_if_they_cannot_be_stored(world: CommitWorld) -> None:
    limit(world, 24)
    world.journal.slow = True
    sent = world.commit(43, "ic/1;60-60,70-70")
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.broker() == (43, "ic/1;45-47,50-50")


def test_later_ranges_are_in_the_text_alone_and_a_merged_one_as_a_whole(world: CommitWorld) -> None:
    limit(world, 24)
    world.commit(43, "ic/1;60-60,70-70")
    world.journal.slow = True
    assert world.commit(43, "ic/1;69-69").codes == [0]
    assert (world.broker(), world.journal.appends) == ((43, "ic/1;60-60,69-70"), [])
    assert world.ranges() == "45-47,50-50,60-60,69-70"
    world.journal.slow = False
    assert world.commit(43, "ic/1;51-51").codes == [0]
    assert world.ranges() == "45-47,50-51,60-60,69-70"
    assert world.committed() == (43, "ic/1;45-47,50-51,60-60,69-70")


def test_commit_too_long_by_itself_is_stored_in_the_topic_after_it(world: CommitWorld) -> None:
    limit(world, 20)
    text = ",".join(f"{first}-{first}" for first in range(60, 90, 2))
    world.journal.slow = True
    sent = world.commit(43, f"ic/1;{text}")
    world.journal.confirm()
    assert (world.broker(), sent.has_response) == ((43, ""), False)
    world.journal.confirm()
    assert sent.codes == [0]
    assert (world.broker(), world.topic_ranges()) == ((43, ""), f"45-47,50-50,{text}")


def test_topic_is_cleared_once_the_metadata_has_room_for_all(world: CommitWorld) -> None:
    limit(world, 24)
    world.commit(43, "ic/1;60-60,70-70")
    assert world.topic_ranges() == "45-47,50-50"
    limit(world, 4096)
    assert world.commit(43, "ic/1;80-80").codes == [0]
    assert (world.broker(), world.topic_ranges()) == ((43, "ic/1;45-47,50-50,60-60,70-70,80-80"), "")


@pytest.mark.parametrize("text", ["ic/1;60-60", "ic/1;60-60;u=mine"])
def test_limit_that_the_proxy_does_not_know_is_found_by_error_12(world: CommitWorld, text: str) -> None:
    world.coordinator.metadata_max = 20
    codes = [world.commit(43, text).codes for _ in range(2)]
    assert codes[1] == [0]
    assert codes[0] in ([0], [ErrorCode.COORDINATOR_NOT_AVAILABLE])
    assert world.services.limit.characters < 20
    assert world.ranges() == "45-47,50-50,60-60"
    assert len(world.services.locks) == 0


def test_metadata_of_the_user_that_is_too_long_is_refused_with_12(world: CommitWorld) -> None:
    world.coordinator.metadata_max = 20
    for metadata in ("m" * 30, f"ic/1;60-60;u={'m' * 30}"):
        codes = [world.commit(43, metadata).codes for _ in range(2)]
        assert codes[1] == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.ranges() == "45-47,50-50"


async def test_records_below_the_committed_offset_are_deleted_and_a_later_rewind_is_seen(world: CommitWorld) -> None:
    """Also by another owner, although the group was reset past every proxy."""
    limit(world, 24)
    world.commit(43, "ic/1;60-60,70-70,80-80")
    assert world.commit(48).codes == [0]
    assert world.topic_ranges() == "50-50"
    world.coordinator.committed["g", "t", 0] = Committed(46)
    await world.restart()
    assert world.committed() == (46, "")


# Rewinds


def test_rewind_deletes_the_records_before_it_is_forwarded(world: CommitWorld) -> None:
    limit(world, 24)
    world.commit(43, "ic/1;60-60,70-70")
    world.journal.slow = True
    sent = world.commit(20)
    assert world.broker()[0] == 43
    world.journal.confirm()
    assert (sent.codes, world.broker(), world.topic_ranges()) == ([0], (20, ""), "")


def test_rewind_that_the_broker_refuses_loses_nothing(world: CommitWorld) -> None:
    limit(world, 24)
    world.commit(43, "ic/1;60-60,70-70")
    world.coordinator.refuse = ErrorCode.ILLEGAL_GENERATION
    assert world.commit(20).codes == [ErrorCode.ILLEGAL_GENERATION]
    assert world.ranges() == "45-47,50-50,60-60,70-70"


def test_rewind_without_records_waits_for_nothing(world: CommitWorld) -> None:
    world.commit(7, "x", partition=1)
    world.journal.slow = True
    assert world.commit(3, "x", partition=1).codes == [0]


# Transactions


def test_transaction_stores_the_ranges_before_its_metadata_can_replace_them(world: CommitWorld) -> None:
    world.journal.slow = True
    sent = world.commit_in_transaction(48, "plain")
    assert ("g", "t", 0) not in world.coordinator.pending
    world.journal.confirm()
    assert sent.codes == [0]
    assert world.topic_ranges() == "45-47,50-50"
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (48, "ic/1;50-50;u=plain")


# Other places


async def test_ranges_move_to_the_topic_and_back_with_the_next_commit(world: CommitWorld) -> None:
    await world.restart("topic")
    assert world.committed() == (43, "ic/1;45-47,50-50")
    assert world.commit(43, "ic/1;60-60").codes == [0]
    assert (world.broker(), world.topic_ranges()) == ((43, ""), "45-47,50-50,60-60")
    await world.restart("metadata")
    assert world.committed() == (43, "ic/1;45-47,50-50,60-60")
    assert world.commit(43, "ic/1;70-70").codes == [0]
    assert (world.broker(), world.topic_ranges()) == ((43, "ic/1;45-47,50-50,60-60,70-70"), "")


def test_outside_commit_replaces_the_text_but_the_owner_stores_what_it_knows(world: CommitWorld) -> None:
    world.coordinator.committed["g", "t", 0] = Committed(46, "of a tool")
    assert world.committed() == (47 + 1, "ic/1;50-50;u=of a tool")
    assert world.topic_ranges() == "45-47,50-50"


# Recreated topics


async def test_new_owner_ignores_a_text_with_ranges_of_a_deleted_topic(world: CommitWorld) -> None:
    """The old owner died before it had noticed the recreation."""
    world.recreate_topic()
    assert world.commit(43, "ic/1;60-60").codes == [0]
    assert world.broker() == (43, "ic/1;45-47,50-50,60-60")
    await world.restart()
    assert world.committed() == (43, "")
    world.timers.advance(6)
    assert world.commit(43, "ic/1;70-70").codes == [0]
    assert world.broker() == (43, "ic/1;70-70")
    await world.restart()
    assert world.committed() == (43, "ic/1;70-70")


def test_owner_that_notices_a_recreated_topic_overwrites_its_text(world: CommitWorld) -> None:
    world.recreate_topic()
    world.commit(43, "ic/1;60-60")
    world.timers.advance(6)
    assert world.commit(43, "ic/1;70-70").codes == [0]
    assert world.broker() == (43, "ic/1;70-70")
    held = world.services.held.group("g").state_of(TopicPartition("t", 0))
    assert str(held.ranges) == "70-70"
