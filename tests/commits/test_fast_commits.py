"""A commit on the fast path: its client's response if something happens in the meantime."""

from __future__ import annotations

import gc

import pytest
from kafka_share_proxy.commits.fast_commits import FastCommit
from kafka_share_proxy.durable.interfaces import RESPONSE_MAX_S
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_COMMIT, CommitWorld

NOT_AVAILABLE = [ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    commit_world.begin(43, "45-47")
    assert commit_world.commit(43, "ic/1;50-50").codes == [0]
    assert commit_world.synchronous_fast_path == 1
    return commit_world


@pytest.mark.states("topic", "overflow")
def test_client_gets_its_response_when_its_ranges_are_stored(world: CommitWorld) -> None:
    world.journal.slow = True
    sent = world.commit(43, "ic/1;60-60")
    assert not sent.has_response
    world.journal.confirm()
    assert sent.codes == [0]
    assert world.is_free


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
@pytest.mark.states("topic")
def test_other_appends_wait_for_it_until_the_coordinator_has_responded(world: CommitWorld, code: ErrorCode) -> None:
    """commits/README.md rule 24."""
    coming = world.services.journal.coming
    world.cluster.held, world.coordinator.refuse = {OFFSET_COMMIT}, code
    world.commit(43, "ic/1;60-60")
    world.commit(43, "ic/1;70-70")
    assert len(coming) == 2
    world.cluster.release()
    assert world.is_free


def test_no_request_waits_for_a_commit_that_has_nothing_to_store(world: CommitWorld) -> None:
    """A plain one of a partition without ranges."""
    world.commit(7, "x", partition=1)
    world.cluster.held = {OFFSET_COMMIT}
    before = world.synchronous_fast_path
    world.commit(8, "x", partition=1)
    assert world.synchronous_fast_path == before + 1
    assert not world.services.journal.coming


@pytest.mark.states("topic", "overflow")
def test_repeated_commit_waits_for_the_append_that_is_on_its_way(world: CommitWorld) -> None:
    world.journal.slow = True
    first, again = world.commit(43, "ic/1;60-60"), world.commit(43, "ic/1;60-60")
    assert len(world.journal.appends) == 1
    assert not again.has_response
    world.journal.confirm()
    assert (first.codes, again.codes) == ([0], [0])


@pytest.mark.states("topic", "overflow")
def test_ranges_that_cannot_be_stored_are_to_be_committed_again(world: CommitWorld) -> None:
    """Only the partition whose ranges they are is refused; the next commit says them again."""
    world.commit(7, "x", partition=1)
    world.journal.slow = True
    sent = world.commit_many([("t", 0, 43, "ic/1;60-60"), ("t", 1, 8, "x")])
    world.journal.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert sent.codes == [*NOT_AVAILABLE, 0]
    world.journal.slow = False
    assert world.commit(43, "ic/1;70-70").codes == [0]
    assert world.ranges() == "45-47,50-50,60-60,70-70"
    assert world.is_free


@pytest.mark.states("topic", "overflow")
def test_append_that_takes_too_long_is_reported_and_continues(world: CommitWorld) -> None:
    world.journal.slow = True
    sent, later = world.commit(43, "ic/1;60-60"), []
    world.timers.advance(RESPONSE_MAX_S / 2)
    later.append(world.commit(43, "ic/1;62-62"))
    world.timers.advance(RESPONSE_MAX_S / 2)
    assert sent.codes == NOT_AVAILABLE
    assert not later[0].has_response
    world.journal.confirm()
    world.journal.confirm()
    assert later[0].codes == [0]
    assert world.ranges() == "45-47,50-50,60-60,62-62"
    world.timers.advance(RESPONSE_MAX_S)
    assert world.is_free


@pytest.mark.states("topic", "overflow")
def test_commits_with_a_response_are_not_kept_until_they_would_be_overdue(world: CommitWorld) -> None:
    """Members commit thousands of times a second."""

    def commit_count() -> int:
        gc.collect()
        return sum(isinstance(each, FastCommit) for each in gc.get_objects())

    world.begin(43, "45-47", group="h")
    before, fast_path_before, world.journal.slow = commit_count(), world.synchronous_fast_path, True
    world.commit(43, "ic/1;60-60", group="h")  # is not stored for long
    for last in range(60, 80):
        world.commit(43, f"ic/1;60-{last}")
        world.journal.confirm(1)
    assert world.synchronous_fast_path - fast_path_before == 21
    assert commit_count() - before <= 3


@pytest.mark.parametrize("is_accepted", [False, True])
@pytest.mark.states("topic", "overflow")
def test_group_that_moves_to_another_owner_meanwhile(world: CommitWorld, is_accepted: bool) -> None:
    """Before the coordinator has responded, and after."""
    if is_accepted:
        world.journal.slow = True
    else:
        world.cluster.held = {OFFSET_COMMIT}
    sent = world.commit(43, "ic/1;60-60")
    world.services.gate.close(ErrorCode.NOT_COORDINATOR, "moved")
    assert sent.codes == NOT_AVAILABLE
    world.cluster.held = set()
    world.cluster.release()
    assert world.is_free
    held = world.services.held.groups["g"].partitions
    assert [each.is_committed_known for each in held.values()] == [is_accepted]


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.states("topic", "overflow")
def test_no_response_is_sent_after_the_lease_has_ended(world: CommitWorld, comes_back: bool) -> None:
    world.journal.slow, gate = True, world.services.gate
    sent = world.commit(43, "ic/1;60-60")
    gate.lease = lambda: False
    world.journal.confirm()
    assert not sent.has_response
    if comes_back:
        gate.lease = lambda: True
        gate.wake()
        assert sent.codes == [0]
    world.timers.advance(HOLD_MAX_S + 0.1)
    assert sent.codes == ([0] if comes_back else NOT_AVAILABLE)
    assert world.is_free


def test_refused_by_the_broker_it_changes_nothing(world: CommitWorld) -> None:
    """The error code decides whether the committed offset is still known."""
    held = next(iter(world.services.held.groups["g"].partitions.values()))
    for code, is_known in ((ErrorCode.REBALANCE_IN_PROGRESS, True), (ErrorCode.UNKNOWN_SERVER_ERROR, False)):
        world.coordinator.refuse = code
        assert world.commit(43, "ic/1;60-60").codes == [code]
        assert held.is_committed_known == is_known
        assert world.ranges() == "45-47,50-50"
        assert world.is_free


def test_client_that_disconnects_before_the_broker_responds_leaves_no_state(world: CommitWorld) -> None:
    world.cluster.held = {OFFSET_COMMIT}
    connection = world.connect()
    world.commit(43, "ic/1;60-60", connection=connection)
    connection.close()
    held = next(iter(world.services.held.groups["g"].partitions.values()))
    assert not held.is_committed_known
    assert world.is_free


@pytest.mark.states("topic", "overflow")
def test_client_that_leaves_before_its_ranges_are_stored_has_them_stored(world: CommitWorld) -> None:
    world.journal.slow = True
    connection = world.connect()
    world.commit(43, "ic/1;60-60", connection=connection)
    connection.close()
    world.journal.confirm()
    assert world.ranges() == "45-47,50-50,60-60"
    assert world.is_free
