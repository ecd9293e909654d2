"""The judge of histories finds each fault, and nothing in correct histories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.history_judge import Verdict, judge_program, verdict_of

pytestmark = pytest.mark.timeout(400)

Line = dict[str, Any]
LIMIT = 3
LOCK = 100
"""Duration of a lock, in the unit of the times below."""


@pytest.fixture(scope="module")
def program() -> Path:
    return judge_program()


def run(**run: Any) -> Line:
    return {"op": "run", "limit": LIMIT, "exact": True, **run}


def record(offset: int, key: str | None = None) -> Line:
    return {"op": "record", "first": offset, "last": offset} | ({} if key is None else {"key": key})


def acquire(member: str, offset: int, at: int, lock: int, deliveries: int = 1, last: int | None = None) -> list[Line]:
    """Return an acquire from `at` to `at` + 2, and the end of its lock."""
    line = {"member": member, "first": offset, "last": offset if last is None else last, "lock": lock}
    begin = {"op": "acquire", "deliveries": deliveries, "call": at, "return": at + 2}
    return [line | begin, line | {"op": "expire", "call": at + LOCK}]


def settle(member: str, offset: int, at: int | None, kind: str = "accept", outcome: str = "ok", **more: Any) -> Line:
    line = {"op": "acknowledge", "member": member, "first": offset, "last": offset, "kind": kind, "outcome": outcome}
    ends = {} if outcome == "unknown" else {"return": (at or 0) + 2}
    return line | {"call": at} | ends | more


def renew(member: str, offset: int, at: int, lock: int) -> list[Line]:
    line = settle(member, offset, at, "renew", lock=lock)
    return [line, {"op": "expire", "member": member, "first": offset, "last": offset, "lock": lock, "call": at + LOCK}]


def judged(program: Path, lines: Sequence[Line | list[Line]]) -> Verdict:
    flat = [one for each in lines for one in (each if isinstance(each, list) else [each])]
    return verdict_of(program, "".join(json.dumps(each) + "\n" for each in flat))


KEYED = (run(keyed=True), record(0, "k"), record(1, "k"), record(2, "other"))
CORRECT: dict[str, list[Line | list[Line]]] = {
    "a record that is accepted": [run(settled=True), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5)],
    "a released record is delivered to another member": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "release"),
        acquire("b", 0, 10, 2, deliveries=2), settle("b", 0, 15),
    ],
    "an expired lock": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), acquire("b", 0, LOCK + 2, 2, deliveries=2),
        settle("a", 0, LOCK + 10, outcome="refused"), settle("b", 0, LOCK + 15),
    ],
    "a record that used up its deliveries is settled": [
        run(settled=True), record(0), *(
            each for number in range(LIMIT)
            for at in (10 * number,)
            for each in (acquire("a", 0, at, number + 1, number + 1), settle("a", 0, at + 5, "release"))
        ),
    ],
    "a renewed lock ends later": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), renew("a", 0, 90, 2), settle("a", 0, 180),
    ],
    "an accept without a response has taken effect": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, outcome="unknown"),
    ],
    "an accept without a response has had no effect": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, outcome="unknown"),
        acquire("b", 0, LOCK + 2, 2, deliveries=2), settle("b", 0, LOCK + 9),
    ],
    "an accept below the start offset succeeds": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), acquire("b", 0, LOCK + 2, 2, deliveries=2),
        settle("b", 0, LOCK + 9), settle("a", 0, LOCK + 20),
    ],
    "an ended session releases the lock early": [
        run(settled=True), record(0), acquire("a", 0, 1, 1)[0],
        {"op": "expire", "member": "a", "first": 0, "last": 0, "lock": 1, "call": 4},
        acquire("b", 0, 8, 2, deliveries=2), settle("b", 0, 15),
    ],
    "a new owner knows no locks, and older counts": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), {"op": "failover", "call": 5, "return": 9},
        acquire("b", 0, 8, 2), settle("b", 0, 15),
    ],
    "several records of one acquire": [
        run(settled=True), record(0), record(1), acquire("a", 0, 1, 1, last=1), settle("a", 0, 5), settle("a", 1, 7),
    ],
    "records of one key one after the other, and other keys meanwhile": [
        *KEYED, acquire("a", 0, 1, 1), acquire("b", 2, 2, 2), settle("a", 0, 10), acquire("b", 1, 11, 3),
        settle("b", 1, 20), settle("b", 2, 30),
    ],
    "a released record of a key is next again": [
        *KEYED, acquire("a", 0, 1, 1), settle("a", 0, 5, "release"), acquire("b", 0, 10, 2, deliveries=2),
        settle("b", 0, 15, "reject"), acquire("a", 1, 20, 3), settle("a", 1, 30),
    ],
    "the next record of a key is acquired while the response to the accept is under way": [
        *KEYED, acquire("a", 0, 1, 1), settle("a", 0, 5, **{"return": 50}), acquire("b", 1, 10, 2), settle("b", 1, 20),
    ],
    "records of one key in a group without order": [
        run(settled=True), record(0, "k"), record(1, "k"), acquire("a", 1, 1, 1), acquire("b", 0, 2, 2),
        settle("a", 1, 10), settle("b", 0, 11),
    ],
}  # fmt: skip

FAULTY: dict[str, list[Line | list[Line]]] = {
    "two members hold one record": [run(), record(0), acquire("a", 0, 1, 1), acquire("b", 0, 10, 2, deliveries=2)],
    "a lock ends before its time": [
        run(), record(0), acquire("a", 0, 1, 1), acquire("b", 0, LOCK - 5, 2, deliveries=2), settle("b", 0, LOCK + 5),
    ],
    "a renewed lock ends at its first time": [
        run(), record(0), acquire("a", 0, 1, 1), renew("a", 0, 90, 2), acquire("b", 0, 110, 3, deliveries=2),
    ],
    "a settled record is delivered again": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5), acquire("b", 0, 200, 2, deliveries=2),
    ],
    "a rejected record is delivered again": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "reject"), acquire("b", 0, 200, 2, deliveries=2),
    ],
    "an accept of a record that another member holds succeeds": [
        run(), record(0), acquire("a", 0, 1, 1), acquire("b", 0, LOCK + 2, 2, deliveries=2), settle("a", 0, LOCK + 9),
    ],
    "an accept after a release succeeds": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "release"), settle("a", 0, 9),
    ],
    "an accept of a record that was never acquired": [run(), record(0), settle("a", 0, 5)],
    "an accept of a held record is refused": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, outcome="refused"),
    ],
    "a second accept succeeds though an earlier record is not settled": [
        run(), record(0), record(1), acquire("a", 1, 1, 1), settle("a", 1, 5), settle("a", 1, 9),
    ],
    "a delivery is not counted": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "release"), acquire("a", 0, 10, 2),
    ],
    "a delivery is counted twice": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "release"), acquire("a", 0, 10, 2, deliveries=3),
    ],
    "a record is delivered beyond the limit": [
        run(exact=False), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "release"),
        acquire("a", 0, 10, 2, deliveries=LIMIT + 1),
    ],
    "a record is lost": [run(settled=True), record(0), record(1), acquire("a", 1, 1, 1), settle("a", 1, 5)],
    "a released record is lost": [
        run(settled=True), record(0), acquire("a", 0, 1, 1), settle("a", 0, 5, "release"),
    ],
    "a new owner delivers a record whose accept was confirmed": [
        run(), record(0), acquire("a", 0, 1, 1), settle("a", 0, 3), {"op": "failover", "call": 6, "return": 9},
        acquire("b", 0, 10, 2, deliveries=1),
    ],
    "a later record of a key is acquired while the first is held": [
        *KEYED, acquire("a", 0, 1, 1), acquire("b", 1, 10, 2), settle("a", 0, 20), settle("b", 1, 30),
    ],
    "a later record of a key is acquired before the first": [
        *KEYED, acquire("a", 1, 1, 1), settle("a", 1, 5), acquire("a", 0, 10, 2), settle("a", 0, 15),
    ],
    "a later record of a key is acquired after the first was released": [
        *KEYED, acquire("a", 0, 1, 1), settle("a", 0, 5, "release"), acquire("a", 1, 10, 2),
    ],
    "a later record of a key is acquired after the lock of the first expired": [
        *KEYED, acquire("a", 0, 1, 1), acquire("a", 1, LOCK + 10, 2), settle("a", 1, LOCK + 20),
    ],
    "one response has two records of a key": [*KEYED, acquire("a", 0, 1, 1, last=1)],
    "a new owner forgets the order": [
        *KEYED, acquire("a", 0, 1, 1), {"op": "failover", "call": 5, "return": 9}, acquire("b", 1, 10, 2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CORRECT)
def test_correct_history_has_no_fault(program: Path, name: str) -> None:
    verdict = judged(program, CORRECT[name])
    assert (verdict.faults, verdict.undecided) == ([], [])


@pytest.mark.parametrize("name", FAULTY)
def test_fault_is_found(program: Path, name: str) -> None:
    verdict = judged(program, FAULTY[name])
    assert verdict.faulty == 1
    assert len(verdict.faults) == 1


def test_fault_names_the_record_and_the_operations(program: Path) -> None:
    (fault,) = judged(program, FAULTY["two members hold one record"]).faults
    assert fault.startswith('record 0 of partition 0: acquire of 0 by "b"')
    assert 'after acquire of 0 by "a"' in fault


def test_history_of_a_hot_key_is_judged(program: Path) -> None:
    """5,000 records of one key, each released once: the search does not try orders that cannot matter."""
    lines: list[Line | list[Line]] = [run(keyed=True, settled=True)]
    for offset in range(5_000):
        at, lock = 20 * offset, 2 * offset
        lines += [record(offset, "hot"), acquire("a", offset, at, lock + 1), settle("a", offset, at + 4, "release")]
        lines += [acquire("b", offset, at + 8, lock + 2, deliveries=2), settle("b", offset, at + 12)]
    verdict = judged(program, lines)
    assert verdict == Verdict(verdict.operations, 5_000, 1, 0, [], [])


def test_line_that_is_no_operation_is_refused(program: Path) -> None:
    with pytest.raises(AssertionError, match="line 1: no such operation"):
        judged(program, [{"op": "peek"}])
