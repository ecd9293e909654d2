"""Acknowledgements of offsets, as batches of a request."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from kafka_share_proxy.consumer.share.share_acknowledgements import RUN_MIN, AcknowledgementSpan, AcknowledgeType, spans

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


def test_one_acknowledge_type_for_all_offsets_is_written_once() -> None:
    assert spans(dict.fromkeys(range(5, 105), ACCEPT)) == [AcknowledgementSpan(5, 104, [1])]


def test_neighbours_of_several_types_are_one_batch() -> None:
    assert spans({10: ACCEPT, 11: RENEW, 12: RELEASE}) == [AcknowledgementSpan(10, 12, [1, 4, 2])]


def test_holes_and_long_runs_begin_another_batch() -> None:
    reported = {1: ACCEPT, 3: RELEASE, 4: ACCEPT, **dict.fromkeys(range(5, 5 + RUN_MIN), RELEASE)}
    assert spans(reported) == [
        AcknowledgementSpan(1, 1, [1]),
        AcknowledgementSpan(3, 4, [2, 1]),
        AcknowledgementSpan(5, 4 + RUN_MIN, [2]),
    ]


def test_no_acknowledgements_are_no_batch() -> None:
    assert spans({}) == []


@given(st.dictionaries(st.integers(0, 60), st.sampled_from(AcknowledgeType)))
def test_batches_contain_exactly_the_acknowledgements(reported: dict[int, AcknowledgeType]) -> None:
    batches = spans(reported)
    by_offset: dict[int, int] = {}
    for first, last, types in batches:
        count = last - first + 1
        assert len(types) in (1, count)
        by_offset.update(zip(range(first, last + 1), types * count if len(types) == 1 else types, strict=True))
    assert by_offset == reported
    assert all(one.last < two.first for one, two in itertools.pairwise(batches))
