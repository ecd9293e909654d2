"""Log lines: levels, limits of repeated lines, and values that are safe to write."""

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from kafka_share_proxy.app.observing import observe
from kafka_share_proxy.app.observing.observe import LogNotes, log_lines, redact
from kafka_share_proxy.loop.log_levels import DEBUG, ERROR, INFO, WARNING


class Lines:
    """Stream that keeps the emitted lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, dict[str, Any]]] = []

    def __call__(self, level: int, event: str, context: Mapping[str, Any]) -> None:
        self.lines.append((level, event, dict(context)))


class Clock:
    """Moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_event_is_counted_and_those_below_the_level_are_not_written() -> None:
    """DEBUG events happen per request: they cost a count, no line."""
    lines = Lines()
    notes = LogNotes(lines, INFO)
    notes("connection-closed", reason="client left")
    notes(observe.SERVING, brokers=3)
    assert lines.lines == [(INFO, "serving", {"brokers": 3})]
    assert notes.counts == {"connection-closed": 1, "serving": 1}


def test_an_event_without_a_level_is_a_warning() -> None:
    """An unlisted event still deserves attention."""
    lines = Lines()
    LogNotes(lines, WARNING)("never-heard-of")
    assert lines.lines == [(WARNING, "never-heard-of", {})]


def test_equal_lines_are_limited_and_their_omission_is_reported() -> None:
    """The next window begins with a line that says how many were left out."""
    lines, clock = Lines(), Clock()
    notes = LogNotes(lines, INFO, clock)
    for _ in range(observe.LINES_MAX + 7):
        notes("request-refused", reason="same")
    notes("request-refused", reason="other")
    assert [context["reason"] for _, _, context in lines.lines] == ["same"] * observe.LINES_MAX + ["other"]
    clock.now = observe.WINDOW_S
    notes("request-refused", reason="same")
    assert lines.lines[-1][2]["left_out_before"] == 7
    assert notes.counts["request-refused"] == observe.LINES_MAX + 9


def test_the_limiter_says_that_it_limits() -> None:
    """The last line of a window reports it; the number of omitted lines is logged with the next other line, if
    necessary.
    """
    lines, clock = Lines(), Clock()
    notes = LogNotes(lines, INFO, clock)
    for _ in range(observe.LINES_MAX + 7):
        notes("request-refused", reason="same")
        clock.now += 1
    assert [context.get("next_ones_left_out_for_s") for _, _, context in lines.lines[-2:]] == [None, 51]
    notes("broker-back", node_id=1)
    assert len(lines.lines) == observe.LINES_MAX + 1
    clock.now = observe.WINDOW_S
    for _ in range(2):
        notes("broker-back", node_id=1)
    (left_out,) = [context for _, event, context in lines.lines if event == "lines-left-out"]
    assert left_out == {"of": "request-refused", "reason": "same", "lines": 7}
    notes("request-refused", reason="same")
    assert "left_out_before" not in lines.lines[-1][2]


def test_an_event_with_ever_new_reasons_is_limited_too() -> None:
    """A peer whose bytes are quoted cannot fill the disk."""
    lines = Lines()
    notes = LogNotes(lines, INFO, Clock())
    for number in range(10 * observe.KINDS_MAX):
        notes("client-protocol-error", reason=f"frame of {number} bytes")
    assert len(lines.lines) == observe.EVENT_LINES_MAX
    assert len(notes._kinds) == observe.EVENT_LINES_MAX + 1, "lines that are left out push no others out"


def test_one_reason_again_and_again_leaves_room_for_others() -> None:
    lines = Lines()
    notes = LogNotes(lines, INFO, Clock())
    for _ in range(10 * observe.EVENT_LINES_MAX):
        notes("client-protocol-error", reason="same")
    notes("client-protocol-error", reason="other")
    assert [context["reason"] for _, _, context in lines.lines] == ["same"] * observe.LINES_MAX + ["other"]


def test_what_is_remembered_about_lines_is_bounded() -> None:
    """Kinds of lines beyond the limit are forgotten, the oldest first."""
    notes = LogNotes(Lines(), INFO, Clock())
    for number in range(2 * observe.KINDS_MAX):
        notes(f"event-{number}")
    assert len(notes._kinds) == observe.KINDS_MAX


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("password", "hunter2", "[hidden]"),
        ("sasl_password_file", "x", "[hidden]"),
        ("auth_bytes", b"x", "[hidden]"),
        ("data", b"abc", "[3 bytes]"),
        ("data", memoryview(b"abcd"), "[4 bytes]"),
        ("count", 3, 3),
        ("flag", True, True),
        ("nothing", None, None),
        ("error", ValueError("boo"), "ValueError: boo"),
        ("error", TimeoutError(), "TimeoutError"),
        ("text", "short", "short"),
    ],
)
def test_values_are_made_fit_for_a_line(key: str, value: object, expected: object) -> None:
    """No secrets, no record contents, plain types only."""
    assert redact(key, value) == expected


def test_long_text_is_cut() -> None:
    """A page of a peer's bytes stays a line."""
    text = redact("text", "x" * 10_000)
    assert len(text) < observe.TEXT_MAX + 50
    assert text.endswith("(10000 characters)")


def test_a_fault_of_ours_is_logged_with_its_traceback() -> None:
    """And without values, in which records might be."""
    lines = Lines()
    try:
        json.loads("{secret")
    except ValueError as error:
        LogNotes(lines, INFO)("handler-failed", error=error, reason="x")
    level, _, context = lines.lines[0]
    assert level == ERROR
    assert "decoder.raw_decode" in context["trace"]
    assert "secret" not in context["trace"]


def test_json_lines_are_json() -> None:
    """One object a line, with time, level and event."""
    stream = io.StringIO()
    notes = LogNotes(log_lines("json", stream), DEBUG)
    notes(observe.BROKER_LISTENING, node_id=1, address="h:1")
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "broker-listening", "level": "info", "node_id": 1, "address": "h:1"}


def test_console_lines_are_for_people() -> None:
    """No colours if the stream is no terminal."""
    stream = io.StringIO()
    LogNotes(log_lines("console", stream), INFO)(observe.STARTING, listen="h:1")
    assert "starting" in stream.getvalue()
    assert "listen=h:1" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_log_without_a_reader_does_no_harm() -> None:
    """A closed pipe or stream loses lines, never clients."""
    stream = io.StringIO()
    notes = LogNotes(log_lines("json", stream), INFO)
    stream.close()
    notes(observe.SERVING)
    assert notes.counts[observe.SERVING] == 1
