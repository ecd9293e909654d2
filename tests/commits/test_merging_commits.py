"""The commonest commits while the metadata holds the ranges: merged into the text, and repeated on one connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from kafka_share_proxy.commits.fast_path import FastPath
from kafka_share_proxy.commits.merging_commits import REPEATED_MAX_S
from kafka_share_proxy.durable.state_partitions import state_partition
from kafka_share_proxy.forwarding.dispatch.declared_api import HOLD_MAX_S
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import OFFSET_COMMIT, CommitWorld
from tests.support.scripted_cluster import Connection

pytestmark = pytest.mark.states("metadata")

NOT_AVAILABLE = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
STATE_PARTITION = state_partition("g")


@pytest.fixture
def world() -> CommitWorld:
    made = CommitWorld()
    made.begin(43, "45-47")
    return made


@pytest.fixture
def repeating(world: CommitWorld) -> Connection:
    """A connection whose next commit may repeat the last one."""
    connection = world.connect()
    for text in ("ic/1;50-50", "ic/1;52-52"):
        assert world.commit(43, text, connection=connection).codes == [0]
    assert world.repeated == 1
    return connection


def test_commonest_commit_merges_one_range_into_the_text(world: CommitWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model plans none of these: a new range, a repeated one, one that touches others."""
    world.commit(43, "ic/1;60-60")
    monkeypatch.setattr(FastPath, "_part", None)
    for text in ("70-70", "60-61", "62-69", "50-50"):
        assert world.commit(43, f"ic/1;{text}").codes == [0]
    assert world.coordinator.committed["g", "t", 0].metadata == "ic/1;45-47,50-50,60-70"
    assert world.ranges() == "45-47,50-50,60-70"


def test_commonest_commit_whose_ranges_change_meanwhile_keeps_both(world: CommitWorld) -> None:
    """The broker's text has a range of an earlier owner, which an OffsetFetch response shows during the commit."""
    world.commit(43, "ic/1;60-60")
    world.cluster.held = {OFFSET_COMMIT}
    sent = world.commit(43, "ic/1;61-61")
    held = world.services.held.groups["g"].partitions[TopicPartition("t", 0)]
    held.learn_committed(43, -1, [(45, 48), (60, 61), (80, 90)])
    world.cluster.held = set()
    world.cluster.release()
    assert sent.codes == [0]
    assert str(held.ranges) == "45-47,60-61,80-89"


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.OFFSET_METADATA_TOO_LARGE])
def test_refused_commonest_commit_changes_nothing(world: CommitWorld, code: ErrorCode) -> None:
    world.commit(43, "ic/1;60-60")
    before = world.ranges()
    world.coordinator.refuse = code
    repeat = ErrorCode.COORDINATOR_NOT_AVAILABLE  # the ranges that the proxy added made the text too long
    assert world.commit(43, "ic/1;62-62").codes == [repeat if code == ErrorCode.OFFSET_METADATA_TOO_LARGE else code]
    assert world.ranges() == before
    world.coordinator.refuse = ErrorCode.NONE
    assert world.commit(43, "ic/1;62-62").codes == [0]


@pytest.mark.parametrize("seed", range(12))
def test_repeated_commits_have_the_same_effect_as_those_of_the_handler(seed: int) -> None:
    """Three members commit on connections that they keep, with refusals, rewinds and pauses."""
    worlds = [CommitWorld(fast_path=True, ranges_max=12), CommitWorld(fast_path=False, ranges_max=12)]
    members = [[world.connect() for _ in range(3)] for world in worlds]
    chance = random.Random(seed)
    offsets = [10, 10]
    for step in range(150):
        refuse = chance.choice([ErrorCode.NONE] * 30 + [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_SERVER_ERROR])
        member, partition, first = chance.randrange(3), chance.choice((0, 0, 0, 1)), chance.randrange(12, 40)
        offsets[partition] += chance.choice([0] * 30 + [-1, 1])
        offset, pause = offsets[partition], chance.choice((0.0, 0.0, 0.0, REPEATED_MAX_S / 3))
        text = f"ic/1;{first}-{first + step % 3}"
        responses = []
        for world, connections in zip(worlds, members, strict=True):
            world.coordinator.refuse = refuse
            sent = world.commit(offset, text, partition=partition, connection=connections[member])
            responses.append(sent.response)
            world.timers.advance(pause)
        fast, slow = worlds
        assert responses[0] == responses[1], step
        assert fast.coordinator.committed == slow.coordinator.committed, step
        assert fast.topic == slow.topic
        assert fast.services.held.groups == slow.services.held.groups
        assert fast.services.figures.commits == slow.services.figures.commits
        assert fast.is_free
    assert worlds[0].repeated > 5


def test_commit_is_read_again_after_a_while(world: CommitWorld, repeating: Connection) -> None:
    """Claims of other features and the topic may have changed."""
    world.timers.advance(REPEATED_MAX_S)
    for text in ("ic/1;60-60", "ic/1;62-62"):
        assert world.commit(43, text, connection=repeating).codes == [0]
    assert world.repeated == 2  # the second one


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.services.gate.close(ErrorCode.NOT_COORDINATOR, "moved"), id="another owner"),
        pytest.param(lambda world: setattr(world.services.gate, "lease", lambda: False), id="lease ended"),
        pytest.param(
            lambda world: world.services.gate.closing([STATE_PARTITION], *NOT_AVAILABLE, "moves"), id="owner leaves"
        ),
        pytest.param(lambda world: world.services.held.drop("g"), id="group deleted"),
    ],
)
def test_commit_is_read_again_after_a_change(
    world: CommitWorld, repeating: Connection, change: Callable[[CommitWorld], object]
) -> None:
    change(world)
    world.commit(43, "ic/1;60-60", connection=repeating)
    assert world.repeated == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: setattr(world.services.gate, "denied", "WRITE"), id="right lost"),
        pytest.param(lambda world: setattr(world.services.held.groups["g"], "is_marker_seen", False), id="new proxy"),
    ],
)
def test_commit_is_checked_again_after_a_while(
    world: CommitWorld, repeating: Connection, change: Callable[[CommitWorld], object]
) -> None:
    change(world)
    world.timers.advance(REPEATED_MAX_S)
    world.commit(43, "ic/1;60-60", connection=repeating)
    assert world.repeated == 1
    assert world.synchronous_fast_path == 2


def test_commit_of_another_partition_or_offset_does_not_repeat(world: CommitWorld, repeating: Connection) -> None:
    assert world.commit(43, "ic/1;60-60", partition=1, connection=repeating).codes == [0]
    assert world.commit(44, "ic/1;60-60", connection=repeating).codes == [0]
    assert world.commit(43, "plain", connection=repeating).codes == [0]
    assert world.repeated == 1


def test_locked_partition_is_not_entered_by_a_repeated_commit(world: CommitWorld, repeating: Connection) -> None:
    world.cluster.held = {OFFSET_COMMIT}
    first = world.commit(43, "ic/1;60-60")
    waiting = world.commit(43, "ic/1;62-62", connection=repeating)
    world.cluster.held = set()
    world.cluster.release()
    assert (first.codes, waiting.codes, world.is_free) == ([0], [0], True)
    assert world.ranges().endswith("60-60,62-62")
    assert world.repeated == 1


def test_group_that_moves_to_another_owner_during_a_repeated_commit(world: CommitWorld, repeating: Connection) -> None:
    world.cluster.held = {OFFSET_COMMIT}
    sent = world.commit(43, "ic/1;60-60", connection=repeating)
    world.services.gate.close(ErrorCode.NOT_COORDINATOR, "moved")
    assert sent.codes == NOT_AVAILABLE
    world.cluster.held = set()
    world.cluster.release()
    assert world.is_free
    assert not world.services.held.groups["g"].partitions[TopicPartition("t", 0)].is_committed_known


@pytest.mark.parametrize("is_renewed", [False, True])
def test_merged_commit_is_not_confirmed_without_a_lease(
    world: CommitWorld, repeating: Connection, is_renewed: bool
) -> None:
    gate, world.cluster.held = world.services.gate, {OFFSET_COMMIT}
    sent = world.commit(43, "ic/1;60-60", connection=repeating)
    assert world.repeated == 2
    gate.lease = lambda: False
    world.cluster.held = set()
    world.cluster.release()
    assert not sent.has_response
    if is_renewed:
        gate.lease = lambda: True
        gate.wake()
    world.timers.advance(HOLD_MAX_S + 0.1)
    assert sent.codes == ([0] if is_renewed else NOT_AVAILABLE)
    assert world.is_free


def test_owner_that_leaves_lets_the_repeated_commit_finish(world: CommitWorld, repeating: Connection) -> None:
    gate, world.cluster.held = world.services.gate, {OFFSET_COMMIT}
    sent = world.commit(43, "ic/1;60-60", connection=repeating)
    assert gate.is_idle([STATE_PARTITION])
    gate.closing([STATE_PARTITION], *NOT_AVAILABLE, "moves")
    assert not gate.is_idle([STATE_PARTITION])
    world.cluster.held = set()
    world.cluster.release()
    assert sent.codes == [0]
    assert world.ranges().endswith("60-60")
    assert gate.is_idle([STATE_PARTITION])
    assert len(world.services.locks) == 0


def test_locks_are_kept_between_commits_until_another_request_needs_them(
    world: CommitWorld, repeating: Connection
) -> None:
    locks = world.services.locks
    assert len(locks) == 2
    assert world.commit(44, "plain").codes == [0]
    assert world.commit(44, "ic/1;60-60", connection=repeating).codes == [0]
    assert len(locks) == 2
    world.request_to_delete("g")
    assert len(locks) == 0


def test_client_that_disconnects_during_a_repeated_commit_leaves_no_state(
    world: CommitWorld, repeating: Connection
) -> None:
    world.cluster.held = {OFFSET_COMMIT}
    world.commit(43, "ic/1;60-60", connection=repeating)
    repeating.close()
    assert not world.services.held.groups["g"].partitions[TopicPartition("t", 0)].is_committed_known
    assert world.is_free


def test_deleted_group_leaves_nothing_that_merges(world: CommitWorld, repeating: Connection) -> None:
    """A restart of the owner, too: the partition is loaded again."""
    group = world.services.held.groups["g"]
    assert group.merging
    group.set_state(TopicPartition("t", 0), replace(group.partitions[TopicPartition("t", 0)]))
    assert not group.merging
    assert world.commit(43, "ic/1;60-60", connection=repeating).codes == [0]
    assert world.repeated == 1


def test_recreated_topics_leave_nothing_in_memory(world: CommitWorld) -> None:
    (group,) = world.services.held.groups.values()
    for _ in range(4):
        world.recreate_topic()
        for text in ("ic/1;50-50", "ic/1;52-52", "ic/1;54-54"):
            assert world.commit(43, text, version=10).codes == [0]
        assert len(group.merging) == len(group.partitions) == 1
