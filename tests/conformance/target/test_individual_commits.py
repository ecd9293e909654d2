"""Texts of finished ranges in the metadata of committed offsets."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.target import individual_commits
from kafka_share_proxy.conformance.target.individual_commits import (
    CommittedOffset,
    RequestedOffset,
    base_of,
    requested_offset,
    with_ranges,
)
from kafka_share_proxy.offsets.ranges import OffsetRanges
from kafka_share_proxy.wire.errors import ErrorCode


def test_a_text_has_ranges_and_the_clients_own_metadata() -> None:
    requested = requested_offset(3, 1, "ic/1;5-6,8-8;pr=1-2;u=mine\0")
    assert isinstance(requested, RequestedOffset)
    assert requested.done == OffsetRanges([(5, 7), (8, 9)])
    assert requested.committed == CommittedOffset(3, 1, "mine\0", ((1, 2),))
    assert with_ranges(requested.committed, requested.done).metadata == "ic/1;5-6,8-8;pr=1-2;u=mine\0"


def test_other_metadata_is_kept() -> None:
    assert requested_offset(3, 1, "ic/x") == RequestedOffset(CommittedOffset(3, 1, "ic/x"))
    assert with_ranges(CommittedOffset(3, 1, "note")).metadata == "note"


@pytest.mark.parametrize(
    ("offset", "text", "code"),
    [
        (0, "ic/1;8", ErrorCode.INVALID_REQUEST),
        (0, "ic/2;8-9", ErrorCode.INVALID_REQUEST),
        (-1, "ic/1;8-9", ErrorCode.INVALID_REQUEST),
        (0, "ic/1;" + ",".join(f"{n}-{n}" for n in range(0, 20_002, 2)), ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_a_bad_text_is_refused(offset: int, text: str, code: ErrorCode) -> None:
    assert requested_offset(offset, -1, text) == code


def test_the_first_ranges_that_fit_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(individual_commits, "TEXT_BYTES_MAX", 14)
    assert with_ranges(CommittedOffset(0), OffsetRanges([(2, 3), (5, 6), (8, 9)])).metadata == "ic/1;2-2,5-5"


def test_a_view_has_a_base() -> None:
    assert [base_of(each) for each in ("t", "__view.s2.t", "__view.bad")] == ["t", "t", "__view.bad"]
