"""Progress of a redrive: finished offsets with gaps; at real brokers see tests/stock."""

from __future__ import annotations

import pytest
from kafka_share_proxy.offsets.commit_text import parse_commit_text
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.sharegroups.dead_letters.redrive import RedriveFailed, RedriveProgress


def test_progress_without_gaps_is_the_committed_offset() -> None:
    progress = RedriveProgress(10, OffsetRanges())
    progress.finish(10, 20, [])
    assert (progress.committed, progress.text()) == (20, "")


def test_skipped_letters_hold_the_committed_offset_and_what_follows_is_remembered() -> None:
    progress = RedriveProgress(10, OffsetRanges())
    progress.finish(10, 20, [12, 13, 19])
    assert progress.committed == 12
    assert list(parse_commit_text(progress.text()).ranges) == [(14, 19)]


def test_letters_skipped_before_are_finished_later() -> None:
    progress = RedriveProgress(0, OffsetRanges())
    progress.finish(0, 5, [1])
    progress.finish(1, 5, [])
    assert (progress.committed, len(progress.done)) == (5, 0)


def test_more_gaps_than_a_commit_can_describe_are_refused() -> None:
    progress = RedriveProgress(0, OffsetRanges())
    progress.finish(0, 2000, range(0, 2000, 2))
    with pytest.raises(RedriveFailed, match="--where has left 1000 gaps"):
        progress.text()
