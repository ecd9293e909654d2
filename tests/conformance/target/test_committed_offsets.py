"""Committed offsets of a group."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import committed_offsets
from kafka_share_proxy.conformance.target.committed_offsets import CommittedOffset, GroupOffsets
from kafka_share_proxy.wire.values import TopicPartition

PARTITION = TopicPartition("t", 0)


def test_offsets_of_a_transaction_count_when_it_commits() -> None:
    offsets = GroupOffsets()
    offsets.add_pending(7, PARTITION, CommittedOffset(3))
    assert offsets.is_pending(PARTITION)
    offsets.end_transaction(8, commits=True)
    offsets.end_transaction(7, commits=True)
    assert (offsets.committed, offsets.is_pending(PARTITION)) == ({PARTITION: CommittedOffset(3)}, False)


def test_the_number_of_offsets_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_offsets, "OFFSETS_MAX", 1)
    offsets = GroupOffsets({PARTITION: CommittedOffset(1)})
    assert [offsets.is_full(each) for each in (PARTITION, TopicPartition("t", 1))] == [False, True]
