"""OffsetFetch of groups with ranges: in every version, for one group or several, named or all topics."""

from __future__ import annotations

import pytest
from kafka_share_proxy.commits.apis.k09_offset_fetch import TEXT_BYTES_MAX
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.commit_world import OFFSET_FETCH, Committed, CommitWorld


@pytest.fixture
def world() -> CommitWorld:
    commit_world = CommitWorld()
    commit_world.begin(43, "45-47,50-50")
    return commit_world


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("everything", [False, True])
def test_every_version_has_committed_offset_and_ranges(world: CommitWorld, version: int, everything: bool) -> None:
    if everything and version < 2:
        pytest.skip("all topics are asked for from v2 on")
    assert world.committed(version=version, everything=everything) == (43, "ic/1;45-47,50-50")


def test_committed_offset_is_returned_after_the_ranges_that_touch_it(world: CommitWorld) -> None:
    world.coordinator.committed["g", "t", 0] = Committed(45, leader_epoch=7)
    assert world.committed() == (48, "ic/1;50-50")
    sent = world.fetch()
    assert sent.response.topics[0].partitions[0].committed_leader_epoch == -1


def test_broker_is_queried_once_for_a_known_group(world: CommitWorld) -> None:
    before = world.cluster.count(OFFSET_FETCH)
    world.committed()
    assert world.cluster.count(OFFSET_FETCH) == before + 1


def test_several_groups_of_which_some_have_ranges(world: CommitWorld) -> None:
    world.commit(7, "plain text", group="other")
    request = registry.message("OffsetFetchRequest")
    topics = [request.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [request.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("other", "g", "third")]
    response = world.send(OFFSET_FETCH, 9, request(groups=groups)).response
    committed = [
        (group.group_id, entry.committed_offset, entry.metadata)
        for group in response.groups
        for topic in group.topics
        for entry in topic.partitions
    ]
    assert committed == [("other", 7, "plain text"), ("g", 43, "ic/1;45-47,50-50"), ("third", -1, "")]


def test_groups_without_ranges_are_served_by_the_broker_alone(world: CommitWorld) -> None:
    world.commit(7, "ic/x", group="other")
    assert world.committed(group="other") == (7, "ic/x")
    assert "other" not in world.services.held.groups


def test_text_in_the_brokers_metadata_of_a_known_group_is_returned_canonical(world: CommitWorld) -> None:
    """Committed past the proxies, or by a transaction; another version of the text stays as it is."""
    world.coordinator.committed["g", "t", 0] = Committed(43, "ic/1;60-61,48-49,45-45;u=x")
    world.services.held.group("g").partitions.clear()
    assert world.committed() == (43, "ic/1;45-45,48-49,60-61;u=x")
    world.coordinator.committed["g", "t", 0] = Committed(43, "ic/2;60~61")
    assert world.committed() == (43, "ic/2;60~61")


def test_open_transaction_is_the_brokers_88_where_stable_offsets_are_required(world: CommitWorld) -> None:
    world.commit_in_transaction(43, "ic/1;48-49")
    sent = world.fetch(stable=True)
    assert sent.response.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert world.committed() == (43, "ic/1;45-47,50-50"), "the last stable offset"


def test_nothing_committed_at_the_broker_ends_the_ranges(world: CommitWorld) -> None:
    del world.coordinator.committed["g", "t", 0]
    assert world.committed() == (-1, "")
    assert world.ranges() == ""


def test_returned_metadata_fit_into_what_kafkas_clients_read(world: CommitWorld) -> None:
    for begin in range(100_000, 120_000, 5_000):
        many = ",".join(f"{first}-{first}" for first in range(begin, begin + 5_000, 4))
        assert world.commit(43, f"ic/1;{many};u=mine").codes == [0]
    _, text = world.committed()
    assert len(text) <= TEXT_BYTES_MAX
    shown = parse_commit_text(text)
    assert shown.user_text == "mine"
    held = world.services.held.group("g").partitions["t", 0].ranges  # type: ignore[index]
    assert list(shown.ranges) == list(held)[: len(shown.ranges)]
    assert len(shown.ranges) > 2000


@pytest.mark.parametrize("version", [1, 5, 7, 8, 9])
def test_refusal_has_the_shape_of_the_version(world: CommitWorld, version: int) -> None:
    world.services.gate.close(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    sent = world.fetch(version=version)
    world.timers.advance(3)
    response = sent.response
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version >= 8:
        assert [(group.group_id, group.error_code) for group in response.groups] == [("g", code)]
    elif version >= 2:
        assert response.error_code == code
    else:
        assert [entry.error_code for topic in response.topics for entry in topic.partitions] == [code]
