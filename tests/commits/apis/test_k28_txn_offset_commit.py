"""TxnOffsetCommit of ranges: they count when the transaction is committed, and never when it is aborted."""

from __future__ import annotations

import random

import pytest
from kafka_share_proxy.commits.model.partition_commits import UNSEEN_MAX_S
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import PRODUCER, CommitWorld


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    commit_world.begin(43, "45-47")
    return commit_world


def test_a004_25_ranges_count_when_the_transaction_is_committed(world: CommitWorld) -> None:
    assert world.commit_in_transaction(43, "ic/1;50-51").codes == [0]
    assert world.ranges() == "45-47"
    assert world.coordinator.pending["g", "t", 0][1].metadata == "ic/1;45-47,50-51"
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed(stable=True) == (43, "ic/1;45-47,50-51")
    assert world.commit(43, "ic/1;43-44").codes == [0]
    assert (world.primary(), world.ranges()) == ((48, ""), "50-51")


def test_a004_25_ranges_of_an_aborted_transaction_are_deleted(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;43-44,50-51")
    world.coordinator.end_transaction(PRODUCER[0], commit=False)
    assert world.committed(stable=True) == (43, "ic/1;45-47")
    assert world.ranges() == "45-47"


def test_offset_is_moved_over_what_is_done(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;43-44,50-51;u=mine")
    offset, text = world.coordinator.pending["g", "t", 0][1].offset, world.coordinator.pending["g", "t", 0][1].metadata
    assert (offset, text) == (48, "ic/1;50-51;u=mine")
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (48, "ic/1;50-51;u=mine")
    assert world.ranges() == "50-51", "moved into the topic by whoever asked first"


def test_plain_offset_in_a_transaction_takes_along_what_it_touches(world: CommitWorld) -> None:
    assert world.commit_in_transaction(45, "plain").codes == [0]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.primary() == (48, "plain")
    assert world.committed() == (48, "plain")
    assert world.ranges() == ""


def test_plain_offset_in_a_transaction_may_go_back(world: CommitWorld) -> None:
    assert world.commit_in_transaction(20).codes == [0]
    assert world.ranges() == "45-47", "nothing happens before it is committed"
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert (world.committed(), world.ranges()) == ((20, ""), "")


def test_second_commit_of_the_same_transaction_keeps_the_ranges_of_the_first(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [0]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (43, "ic/1;45-47,50-51,60-61")


def test_next_transaction_of_the_producer_says_nothing_of_the_one_before(world: CommitWorld) -> None:
    """The first was aborted; with transactions of version 2 the epoch differs, otherwise the broker is queried."""
    world.commit_in_transaction(43, "ic/1;50-51")
    world.coordinator.end_transaction(PRODUCER[0], commit=False)
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [0]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (43, "ic/1;45-47,60-61")


def test_a004_26_individual_commits_wait_for_the_open_transaction(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    assert world.commit(43, "ic/1;60-61").codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.ranges() == "45-47"
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.commit(43, "ic/1;60-61").codes == [0]
    assert world.ranges() == "45-47,50-51,60-61"


def test_plain_commit_during_an_open_transaction_is_the_brokers(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    assert world.commit(46, "plain").codes == [0]
    assert world.primary() == (46, "plain")
    world.coordinator.end_transaction(PRODUCER[0], commit=False)
    assert world.committed() == (48, "plain")


@pytest.mark.states("topic", "overflow")
def test_ranges_in_the_metadata_are_in_the_topic_before_anything_overwrites_them(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    world.journal.slow = True
    sent = world.commit(43, "ic/1;60-61")
    assert world.broker() == (43, "ic/1;45-47,50-51")
    world.journal.confirm()
    assert world.broker() == (43, "")
    world.journal.confirm()
    assert sent.codes == [0]
    assert world.ranges() == "45-47,50-51,60-61"


@pytest.mark.states("topic", "overflow")
def test_ranges_that_cannot_be_saved_are_not_overwritten(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    world.journal.slow = True
    sent = world.commit(43, "ic/1;60-61")
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert sent.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.broker() == (43, "ic/1;45-47,50-51")


def test_text_too_long_for_the_broker_is_its_12(world: CommitWorld) -> None:
    many = ",".join(f"{first}-{first}" for first in range(100, 5000, 4))
    assert world.commit_in_transaction(43, f"ic/1;{many}").codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit(43, "ic/1;60-61").codes == [0]


def test_a004_15_text_that_cannot_be_read_is_refused(world: CommitWorld) -> None:
    assert world.commit_in_transaction(43, "ic/1;9-7").codes == [ErrorCode.INVALID_REQUEST]
    assert not world.coordinator.pending


async def test_after_a_takeover_the_transaction_is_aborted_and_nothing_of_it_is_lost(world: CommitWorld) -> None:
    """The new owner of the group does not know the content of the first text."""
    world.commit_in_transaction(43, "ic/1;50-51")
    await world.restart()
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.coordinator.pending["g", "t", 0][1].metadata == "ic/1;45-47,50-51"
    world.timers.advance(UNSEEN_MAX_S)
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [ErrorCode.ILLEGAL_GENERATION]
    world.coordinator.end_transaction(PRODUCER[0], commit=False)
    assert world.commit_in_transaction(43, "ic/1;50-51").codes == [0]
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [0]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (43, "ic/1;45-47,50-51,60-61")


async def test_transaction_that_ends_by_itself_after_a_takeover_is_waited_for(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    await world.restart()
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.commit_in_transaction(43, "ic/1;60-61").codes == [0]
    assert world.coordinator.pending["g", "t", 0][1].metadata == "ic/1;45-47,50-51,60-61"


async def test_plain_offset_in_a_transaction_is_forwarded_after_a_takeover(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    await world.restart()
    assert world.commit_in_transaction(60).codes == [0]


def test_ranges_of_two_producers_do_not_overwrite_each_other(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;50-51")
    other = world.commit_in_transaction(43, "ic/1;60-61", producer=(8, 0))
    assert other.codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.commit_in_transaction(43, "ic/1;60-61", producer=(8, 0)).codes == [0]
    assert world.coordinator.pending["g", "t", 0][1].metadata == "ic/1;45-47,50-51,60-61"


def test_text_after_a_plain_offset_of_the_same_transaction_is_forwarded(world: CommitWorld) -> None:
    world.commit_in_transaction(44)
    assert world.commit_in_transaction(44, "ic/1;60-61").codes == [0]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (44, "ic/1;45-47,60-61")


@pytest.mark.parametrize("version", range(6))
def test_every_version_carries_ranges(world: CommitWorld, version: int) -> None:
    assert world.commit_in_transaction(43, "ic/1;50-51", version=version).codes == [0]
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    assert world.committed() == (43, "ic/1;45-47,50-51")


class NothingArrives(random.Random):
    """Chance of a crash that loses all that is in flight."""

    def random(self) -> float:
        return 1.0

    def randrange(self, *_: int) -> int:
        return 0


@pytest.mark.states("topic", "overflow")
@pytest.mark.parametrize("is_fetched", [False, True], ids=["by a commit", "by a fetch"])
@pytest.mark.parametrize("end", ["refused", "too late", "disconnected"])
async def test_ranges_that_were_not_stored_are_stored_before_the_next_commit(
    world: CommitWorld, end: str, is_fetched: bool
) -> None:
    """Otherwise that commit overwrites them at the broker, and a crash before its own append loses them."""
    world.commit_in_transaction(43, "ic/1;50-51")
    world.coordinator.end_transaction(PRODUCER[0], commit=True)
    world.journal.slow = True
    connection = world.connect()
    first = world.fetch(connection) if is_fetched else world.commit(43, "ic/1;60-61", connection=connection)
    if end == "disconnected":
        connection.close()
    elif end == "too late":
        world.timers.advance(RESPONSE_MAX_S)
    else:
        while world.journal.appends:
            world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert first.has_response  # or it was cancelled
    world.commit(43, "ic/1;70-71")
    await world.crash(NothingArrives(), world.state)
    world.journal.slow = False
    assert "50-51" in world.committed()[1]
