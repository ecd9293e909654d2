"""Committed offsets of a group."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import committed_offsets
from kafka_share_proxy.conformance.target.committed_offsets import GroupOffsets
from kafka_share_proxy.conformance.target.individual_commits import CommittedOffset, RequestedOffset, requested_offset
from kafka_share_proxy.wire.errors import ErrorCode
from kafka_share_proxy.wire.values import TopicPartition

PARTITION = TopicPartition("t", 0)


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    offsets = GroupOffsets()
    offsets.add_pending(7, PARTITION, RequestedOffset(CommittedOffset(3)), 100)
    assert offsets.is_pending(PARTITION)
    offsets.end_transaction(8, commits=True)
    offsets.end_transaction(7, commits=True)
    assert (offsets.committed, offsets.is_pending(PARTITION)) == ({PARTITION: CommittedOffset(3)}, False)


def test_the_number_of_offsets_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_offsets, "OFFSETS_MAX", 1)
    offsets = GroupOffsets({PARTITION: CommittedOffset(1)})
    assert [offsets.is_full(each) for each in (PARTITION, TopicPartition("t", 1))] == [False, True]


def of_text(offset: int, metadata: str = "") -> RequestedOffset:
    requested = requested_offset(offset, -1, metadata)
    assert isinstance(requested, RequestedOffset)
    return requested


def shown(offsets: GroupOffsets) -> tuple[int, str]:
    committed = offsets.shown(PARTITION) or CommittedOffset(-1)
    return committed.offset, committed.metadata


def test_ranges_are_merged_and_moved_over() -> None:
    offsets = GroupOffsets()
    steps = []
    for offset, text in ((0, ""), (0, "ic/1;4-5"), (0, "ic/1;7-7"), (3, ""), (4, ""), (1, "")):
        assert offsets.commit(PARTITION, of_text(offset, text)) == ErrorCode.NONE
        steps.append(shown(offsets))
    assert steps == [(0, ""), (0, "ic/1;4-5"), (0, "ic/1;4-5,7-7"), (3, "ic/1;4-5,7-7"), (6, "ic/1;7-7"), (1, "")]


def test_the_leader_epoch_is_that_of_the_committed_offset() -> None:
    offsets = GroupOffsets()
    epochs = []
    for offset, text in ((2, ""), (2, "ic/1;5-5"), (1, "ic/1;7-7"), (3, "ic/1;3-4")):
        committed = RequestedOffset(CommittedOffset(offset, 9), of_text(offset, text).done)
        offsets.commit(PARTITION, committed)
        held = offsets.shown(PARTITION)
        assert held is not None
        epochs.append((held.offset, held.leader_epoch))
    assert epochs == [(2, 9), (2, 9), (2, 9), (6, -1)]


@pytest.mark.parametrize(("commits", "expected"), [(True, (5, "ic/1;8-8")), (False, (0, "ic/1;4-4"))])
def test_ranges_of_a_transaction_count_when_it_commits(commits: bool, expected: tuple[int, str]) -> None:
    offsets = GroupOffsets()
    offsets.commit(PARTITION, of_text(0, "ic/1;4-4"))
    for text in ("ic/1;0-1", "ic/1;2-3,8-8"):
        assert offsets.add_pending(7, PARTITION, of_text(0, text), 100) == ErrorCode.NONE
    assert shown(offsets) == (0, "ic/1;4-4")
    assert offsets.add_pending(8, PARTITION, of_text(0, "ic/1;9-9"), 100) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert offsets.commit(PARTITION, of_text(0, "ic/1;9-9")) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    offsets.end_transaction(7, commits=commits)
    assert shown(offsets) == expected
    assert offsets.commit(PARTITION, of_text(0, "ic/1;10-10")) == ErrorCode.NONE


def test_a_transaction_bounds_its_text() -> None:
    offsets = GroupOffsets()
    assert offsets.add_pending(7, PARTITION, of_text(0, "ic/1;4-4,6-6"), 10) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_ranges_end_with_the_offset() -> None:
    offsets = GroupOffsets()
    for end in (lambda: offsets.delete(PARTITION), lambda: offsets.delete_topic("t")):
        offsets.commit(PARTITION, of_text(0, "ic/1;4-4"))
        end()
        offsets.commit(PARTITION, of_text(4))
        assert shown(offsets) == (4, "")


def test_ranges_refer_to_one_division_of_a_topic() -> None:
    offsets = GroupOffsets()
    view, other = TopicPartition("__view.r2.t", 0), TopicPartition("__view.r4.t", 0)
    assert offsets.commit(view, of_text(0, "ic/1;4-4")) == ErrorCode.NONE
    assert offsets.commit(TopicPartition("__view.r2.t", 1), of_text(0, "ic/1;4-4")) == ErrorCode.NONE
    for partition in (PARTITION, other):
        assert offsets.commit(partition, of_text(0, "ic/1;4-4")) == ErrorCode.INVALID_REQUEST
        assert offsets.add_pending(7, partition, of_text(0, "ic/1;4-4"), 100) == ErrorCode.INVALID_REQUEST
    assert offsets.commit(PARTITION, of_text(0)) == ErrorCode.NONE
