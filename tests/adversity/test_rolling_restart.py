"""A share group while the brokers of its cluster are restarted, in short (at length: `tests/soak/rolling`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers import OLD, Running
from tests.support.rolling import Plan, Rolling
from tests.support.settlements import IN_FLIGHT_NS, Ledger

SECOND = 1_000_000_000
PRODUCED = {"a": (0, 0), "b": (0, 1)}
GOOD = (
    f"D 0 0 1 a {1 * SECOND} {2 * SECOND}",
    f"D 0 1 1 b {1 * SECOND} {2 * SECOND}",
    f"S 0 {3 * SECOND} 0",
    f"S 0 {5 * SECOND} 1",
)


def _ledger(*lines: str) -> Ledger:
    ledger = Ledger()
    for line in lines:
        ledger.take("member", line)
    return ledger


def test_the_ledger_finds_nothing_where_all_is_well() -> None:
    """Each record was given to a member once, and confirmed once."""
    ledger = _ledger(*GOOD)
    assert ledger.faults(PRODUCED) == []
    assert ledger.gaps(1 * SECOND, 6 * SECOND) == [
        (2 * SECOND, 3 * SECOND),
        (2 * SECOND, 1 * SECOND),
        (1 * SECOND, 5 * SECOND),
    ]


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ((*GOOD, f"S 0 {6 * SECOND} 0"), "settled 2 times"),
        ((*GOOD, f"D 0 0 2 a {3 * SECOND + IN_FLIGHT_NS + 1} {7 * SECOND}"), "delivered after it was settled"),
        (GOOD[:3], "never settled"),
        ((*GOOD, f"D 0 2 1 c {2 * SECOND} {3 * SECOND}"), "where None was produced"),
        ((*GOOD, f"S 0 {6 * SECOND} 2"), "never delivered"),
    ],
)
def test_the_ledger_finds_each_fault(lines: tuple[str, ...], fault: str) -> None:
    """Exactly one fault is reported."""
    (reported,) = _ledger(*lines).faults(PRODUCED)
    assert fault in reported


@pytest.mark.parametrize(
    "lines",
    [
        (*GOOD, f"D 0 0 1 a {2 * SECOND} {7 * SECOND}", f"F 0 {8 * SECOND} InvalidRecordStateException 0"),
        (*GOOD[:3], f"F 0 {4 * SECOND} DisconnectException 1"),
    ],
    ids=["it lay in a buffer before another settled it", "the answer was lost with its connection"],
)
def test_the_ledger_knows_what_may_happen(lines: tuple[str, ...]) -> None:
    """Observations of a client whose broker works correctly."""
    ledger = _ledger(*lines)
    assert ledger.faults(PRODUCED) == []
    assert ledger.rejected_acceptances(PRODUCED) == []


OVERTAKEN = ("early", f"D 0 0 1 a {1 * SECOND} {2 * SECOND}"), ("late", f"D 0 0 2 a {4 * SECOND} {5 * SECOND}")
"""The lock of the first has ended."""


@pytest.mark.parametrize(
    ("reported", "faults"),
    [
        ((("late", f"S 0 {6 * SECOND} 0"), ("early", f"S 0 {7 * SECOND} 0")), 0),
        ((("late", f"S 0 {6 * SECOND} 0"), ("late", f"S 0 {7 * SECOND} 0")), 1),
        ((("late", f"S 0 {6 * SECOND} 0"), ("early", f"S 0 {4 * SECOND} 0")), 1),
    ],
    ids=["another one settled it meanwhile", "it was told twice", "it was settled, and given out again"],
)
def test_the_ledger_knows_who_was_overtaken(reported: tuple[tuple[str, str], ...], faults: int) -> None:
    """A late acknowledgement of records that another member has settled gets a response without an error."""
    ledger = Ledger()
    for member, line in (*OVERTAKEN, *reported):
        ledger.take(member, line)
    assert len(ledger.faults({"a": (0, 0)})) == faults


def test_the_ledger_reports_acceptances_that_were_refused() -> None:
    """Its acceptance was refused, and no other member accepted it."""
    ledger = _ledger(*GOOD[:3], f"F 0 {4 * SECOND} InvalidRecordStateException 1")
    assert ledger.faults(PRODUCED) == []
    assert len(ledger.rejected_acceptances(PRODUCED)) == ledger.never_reported(PRODUCED) == 1


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_share_group_survives_a_rolling_restart(running: Running, tmp_path: Path) -> None:
    """Two of three brokers are restarted, one in order and one by a crash; the group settles every record once."""
    kafka = running.cluster(OLD, nodes=3)
    front = running.front(kafka.bootstrap)
    plan = Plan(seconds=0, restarts_min=2, rate=200, members=2)
    outcome = Rolling(kafka, front.bootstrap, tmp_path / "members", plan).run()
    assert outcome.faults() == []
    assert outcome.ledger.rejected_acceptances(outcome.produced) == []
    assert [ended.signal for ended in outcome.ended] == ["SIGTERM", "SIGKILL"]
    last = max(delivery.at for each in outcome.ledger.confirmed.values() for delivery in each)
    assert last > outcome.ended[-1].at, "nothing was settled after the last broker was ended"
