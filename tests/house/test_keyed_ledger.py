"""The check of key order (`tests/support/keyed_ledger.py`) finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.support.keyed_ledger import KeyedLedger

KEYS = {(0, 0): b"a", (0, 1): b"a", (0, 2): b"b"}
LATE_NS = 100


def ledger(*lines: str) -> KeyedLedger:
    """Each line begins with the member's name."""
    keyed_ledger = KeyedLedger()
    for line in lines:
        keyed_ledger.take(*line.split(" ", 1))
    return keyed_ledger


IN_ORDER = (
    "x D 0 0 10 1", "y D 0 2 11 1", "x A 0 0 20", "y A 0 2 21", "x S 0 0 30 -", "y S 0 2 31 -",
    "y D 0 1 25 1", "y A 0 1 26", "y S 0 1 32 -",
)  # fmt: skip


def test_records_settled_in_order_have_no_faults() -> None:
    filled = ledger(*IN_ORDER)
    assert filled.faults(KEYS, LATE_NS) == []
    assert filled.settled() == set(KEYS)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"y D 0 1 25 1": "y D 0 1 19 1"}, "(0, 1) was delivered before (0, 0) was settled"),
        ({"x A 0 0 20": "x R 0 0 20"}, "(0, 0) was never settled"),
        ({"x S 0 0 30 -": "x S 0 0 30 InvalidRecordStateException"}, "(0, 0) was never settled"),
        ({"y D 0 2 11 1": "y D 0 2 132 2"}, "(0, 2) was delivered 0.0 s after it was settled"),
        ({"y D 0 1 25 1": "y D 0 3 25 1"}, "(0, 3) was delivered and never produced"),
    ],
)
def test_a_fault_is_found(change: dict[str, str], fault: str) -> None:
    faults = ledger(*(change.get(line, line) for line in IN_ORDER)).faults(KEYS, LATE_NS)
    assert any(fault in each for each in faults), faults


def test_a_settle_that_was_refused_does_not_free_the_key() -> None:
    lines = ["x D 0 0 10 1", "x A 0 0 20", "x S 0 0 30 INVALID_RECORD_STATE", "y D 0 1 40 1", "y D 0 0 50 2"]
    faults = ledger(*lines, "y A 0 0 60", "y A 0 1 61").faults({(0, 0): b"a", (0, 1): b"a"}, LATE_NS)
    assert faults == ["key b'a': (0, 1) was delivered before (0, 0) was settled"]


def test_a_settle_without_a_result_may_have_freed_the_key() -> None:
    """Its member was killed."""
    lines = ["x D 0 0 10 1", "x A 0 0 20", "y D 0 1 40 1", "y A 0 1 50"]
    filled = ledger(*lines)
    assert filled.faults({(0, 0): b"a", (0, 1): b"a"}, LATE_NS) == []
    assert filled.settled() == set()


def test_a_record_may_be_delivered_again_long_after_a_settle_with_an_unknown_outcome() -> None:
    """Its connection was lost with the owner, so nothing was stored."""
    lines = ["x D 0 0 10 1", "x A 0 0 20", "x S 0 0 30 UnknownServerException", "y D 0 0 500 2", "y A 0 0 510"]
    assert ledger(*lines, "y S 0 0 520 -").faults({(0, 0): b"a"}, LATE_NS) == []
