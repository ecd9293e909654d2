"""The table of produce errors: one row for each code, and nothing definite that a broker may say after an append."""

from __future__ import annotations

import pytest
from kafka_share_proxy.durable.produce_errors import PRODUCE_ERRORS, Follows, Raised, what_follows
from kafka_share_proxy.wire.errors import ErrorCode


def test_each_code_has_one_row() -> None:
    assert len({row.code for row in PRODUCE_ERRORS}) == len(PRODUCE_ERRORS)
    assert all(row.by for row in PRODUCE_ERRORS)


def test_errors_that_can_follow_an_append_are_unknown_outcomes() -> None:
    """And nothing else is: a code that is only ever raised before the append is definite for its attempt."""
    after = {row.code for row in PRODUCE_ERRORS if row.raised is not Raised.BEFORE}
    assert after == {row.code for row in PRODUCE_ERRORS if row.follows is Follows.UNKNOWN}
    assert after >= {ErrorCode.of(code) for code in (-1, 3, 6, 7, 20, 56)}


@pytest.mark.parametrize("code", sorted(set(ErrorCode) - {row.code for row in PRODUCE_ERRORS}))
def test_a_code_without_a_row_is_unknown(code: ErrorCode) -> None:
    assert what_follows(code) is (Follows.STORED if code == ErrorCode.NONE else Follows.UNKNOWN)
