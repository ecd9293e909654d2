"""Accepted commits: the leader epoch that is stored, and the parts whose ranges a client waits for."""

from __future__ import annotations

from kafka_share_proxy.commits.accepted_commits import PlannedPart, apply, epoch_of
from kafka_share_proxy.commits.held_state import CommittingGroup
from kafka_share_proxy.commits.model.partition_commits import PartitionCommit, PartitionCommits
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.codec.commit_frames import CommittedEntry
from kafka_share_proxy.wire.values import TopicPartition

from tests.support.commit_world import CommitWorld


def test_only_a_known_offset_has_an_epoch_that_the_member_did_not_send() -> None:
    held = PartitionCommits()
    held.learn_committed(50, 7)
    assert epoch_of(held, 43, 3, 43) == 3
    assert epoch_of(held, 43, 3, 50) == 7
    assert epoch_of(held, 43, 3, 49) == epoch_of(None, 43, 3, 50) == -1
    held.forget_committed()
    assert epoch_of(held, 43, 3, 50) == -1


def part(group: CommittingGroup, partition: int, done: OffsetRanges | None) -> PlannedPart:
    place = TopicPartition("t", partition)
    held, commit = group.state_of(place), PartitionCommit(43, done)
    held.learn_committed(43, 3)
    offset, moves, _ = held.plan(commit)
    return PlannedPart(CommittedEntry("t", partition, 43, 3, "", 0, 0, 0), place, held, commit, offset, moves, 3)


def test_individual_commits_wait_for_their_ranges_and_plain_ones_for_nothing() -> None:
    world = CommitWorld(slow=True)
    group = world.services.held.group("g")
    plain, individual = part(group, 0, None), part(group, 1, OffsetRanges([(45, 47)]))
    assert apply(world.services, group, "m", [plain, individual]) == [individual]
    ((records, _),) = world.journal.appends
    assert [(key.partition, key.first, key.last) for key, _ in records] == [(1, 45, 46)]
    assert apply(world.services, group, "m", [plain]) == []
    assert len(world.journal.appends) == 1
