"""Comparisons of what was expected with what was seen."""

from __future__ import annotations

import pytest
from kafka_share_proxy.conformance.suite.expectations import Mismatch, equal, one_of, true
from kafka_share_proxy.wire.errors import ErrorCode


def test_equal_values_pass() -> None:
    for function, values in (
        (equal, (122, ErrorCode.SHARE_SESSION_NOT_FOUND)),
        (one_of, (3, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])),
        (true, (1, "true")),
    ):
        assert function("value", *values) is None


def test_codes_are_shown_with_their_names() -> None:
    with pytest.raises(Mismatch) as caught:
        equal("error", 42, ErrorCode.NONE)
    assert (caught.value.quantity, caught.value.expected, caught.value.actual) == (
        "error",
        "0 (NONE)",
        "42 (INVALID_REQUEST)",
    )


def test_an_unknown_code_is_shown_as_a_number() -> None:
    with pytest.raises(Mismatch, match="seen 31000"):
        equal("error", 31_000, ErrorCode.NONE)


def test_a_value_outside_a_choice_names_all() -> None:
    with pytest.raises(Mismatch, match=r"one of 0 \(NONE\), 3 \(UNKNOWN_TOPIC_OR_PARTITION\), seen 6"):
        one_of("error", 6, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


def test_a_false_condition_is_described() -> None:
    with pytest.raises(Mismatch, match="expected above 0, seen -1"):
        true("epoch", False, "above 0", -1)
