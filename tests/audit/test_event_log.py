"""The log of events: numbers, limits and lines of JSON, the same in C and in Python."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from kafka_share_proxy.audit import event_log
from kafka_share_proxy.audit.event_log import LAYOUTS, EventLog, _PythonEventLog
from kafka_share_proxy.audit.events import COSTS, FIELDS, Place, as_json

from tests.support import audit_lines

PLACE = Place(b"t", 0)
NOW_MS = 1000
KERNELS: list[Callable[..., EventLog]] = [event_log._Log, _PythonEventLog]
ODD = ('a\n"b"\\', "é\udc80", "\x7f\0", "", None, -1, 0, 1 << 63, -(1 << 63), 1 << 80, True, [(1, 2)], {"k": None}, 1.5)
"""Values of every kind, of which some are rare."""


@pytest.fixture(params=KERNELS)
def log(request: pytest.FixtureRequest) -> EventLog:
    event_log_of_kernel: EventLog = request.param(1000, lambda: NOW_MS, LAYOUTS, as_json)
    return event_log_of_kernel


def json_value(log: EventLog, *values: object, kind: str = "forced_release", place: Place = PLACE) -> bytes:
    log.offer(kind, place, "g", None, values)
    (line,) = take_lines(log)
    return line


def take_lines(log: EventLog, cost_max: int = 1_000_000) -> list[bytes]:
    return log.take(cost_max, "p", None, lambda topic: topic.decode() + "!")


def test_extension_is_the_one_that_is_used() -> None:
    assert (event_log.KERNEL == "c") == (event_log._Log is not _PythonEventLog)


def test_a_line_is_a_json_object_with_the_fields_of_every_event_first(log: EventLog) -> None:
    line = json_value(log, 10, 2)
    assert line.endswith(b"}\n")
    assert list(json.loads(line).items()) == [
        *(("v", 2), ("proxy_id", "p"), ("seq", 1), ("ts_ms", NOW_MS), ("kind", "forced_release"), ("cluster", None)),
        *(("topic", "t!"), ("partition", 0), ("group", "g"), ("member", None), ("records", 10), ("ranges", 2)),
    ]


def test_a_topic_that_is_named_needs_no_look_up(log: EventLog) -> None:
    assert audit_lines.event(json_value(log, 1, 1, place=Place("named", None)))["topic"] == "named"


def test_a_name_is_looked_up_once_in_one_go(log: EventLog) -> None:
    requested = list[bytes]()
    for topic in (b"a", b"b", b"a", b"a"):
        log.offer("forced_release", Place(topic, 0), None, None, (1, 1))
    lines = log.take(10, "p", "c", lambda topic: requested.append(topic) or topic.decode())  # type: ignore[func-returns-value]
    assert [json.loads(line)["topic"] for line in lines] == ["a", "b", "a", "a"]
    assert set(requested) == {b"a", b"b"}


def test_an_event_with_too_few_values_or_of_no_kind_is_a_mistake(log: EventLog) -> None:
    with pytest.raises(TypeError, match="forced_release has 2 values, not 1"):
        log.offer("forced_release", PLACE, None, None, (10,))
    with pytest.raises(KeyError):
        log.offer("unheard", PLACE, None, None, ())
    assert (len(log), log.seq) == (0, 0)


def test_names_are_escaped(log: EventLog) -> None:
    """Client-chosen names cannot end a line."""
    line = json_value(log, "views", "all", 'a\n"b"', kind="scope")
    assert line.count(b"\n") == 1
    assert json.loads(line)["reason"] == 'a\n"b"'


def test_events_that_find_no_room_leave_a_gap_in_seq() -> None:
    for kernel in KERNELS:
        log = kernel(2, lambda: NOW_MS, LAYOUTS, as_json)
        for _ in range(5):
            log.offer("forced_release", PLACE, "g", "m", (1, 1))
        assert [json.loads(line)["seq"] for line in take_lines(log)] == [1, 2]
        log.offer("forced_release", PLACE, "g", "m", (1, 1))
        assert ([json.loads(line)["seq"] for line in take_lines(log)], log.dropped, log.seq) == ([6], 3, 6)


def test_few_costly_events_are_taken_at_a_time(log: EventLog) -> None:
    """Only the topics of these events are returned."""
    values = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {})
    for topic in (b"a", b"b", b"c"):
        log.offer("load", Place(topic, 0), None, None, values)
    assert log.topic_ids(COSTS["load"] + 1) == {b"a", b"b"}
    assert len(take_lines(log, COSTS["load"] + 1)) == 2
    assert (log.topic_ids(1), len(take_lines(log, 1)), len(log)) == ({b"c"}, 1, 0)
    assert (log.topic_ids(1), take_lines(log)) == (set(), [])


def test_a_value_that_cannot_be_written_fails_once(log: EventLog) -> None:
    """The event is gone; those after it are written."""
    log.offer("forced_release", PLACE, None, None, (object(), 1))
    log.offer("forced_release", PLACE, None, None, (1, 1))
    with pytest.raises(AttributeError):
        take_lines(log)
    assert [json.loads(line)["seq"] for line in take_lines(log)] == [2]


@pytest.mark.parametrize("seed", range(20))
def test_extension_and_python_fallback_write_the_same(seed: int) -> None:
    dice = random.Random(seed)
    logs = [kernel(150, lambda: NOW_MS, LAYOUTS, as_json) for kernel in KERNELS]
    for _ in range(300):
        kind = dice.choice(list(FIELDS))
        place = Place(dice.choice((None, "n", b"1" * 16, b"2" * 16)), dice.choice((None, 0, 7)))
        values = tuple(dice.choice(ODD) for _ in FIELDS[kind])
        for log in logs:
            log.offer(kind, place, dice.choice(("g",)), "é", values)
        if dice.random() < 0.05:
            cost = dice.choice((0, 1, 3, 100))
            assert logs[0].topic_ids(cost) == logs[1].topic_ids(cost)
            first, second = (log.take(cost, "p\n", "c", bytes.hex) for log in logs)
            assert first == second
    assert logs[0].take(1_000_000, "p", "c", bytes.hex) == logs[1].take(1_000_000, "p", "c", bytes.hex)
    assert (logs[0].seq, logs[0].dropped, len(logs[0])) == (logs[1].seq, logs[1].dropped, len(logs[1]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "unheard"},
        {"records": -1},
        {"records": None},
        {"extra": 1},
        {"v": 1},
    ],
)
def test_line_checker_of_these_tests_rejects_wrong_lines(log: EventLog, wrong: dict[str, object]) -> None:
    """A test that reads lines with it can fail."""
    line = json.loads(json_value(log, 10, 2)) | wrong
    with pytest.raises((AssertionError, KeyError)):
        audit_lines.event(json.dumps(line))
