"""Trouble that lasts: first line, reminder, end."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.loop.lasting_trouble import REMIND_S, LastingTrouble


class Reported:
    """Lines, and a clock."""

    def __init__(self, patience_s: float = 0.0) -> None:
        self.now = 100.0
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.trouble = LastingTrouble(
            self.note, "not-read", "read", patience_s=patience_s, clock=lambda: self.now, topic="t"
        )

    def note(self, event: str, /, **context: Any) -> None:
        self.lines.append((event, context))


def test_lasting_trouble_has_a_first_line_reminders_with_its_count_and_an_end() -> None:
    """Twice a second for two and a half minutes is four lines."""
    reported = Reported()
    for _ in range(300):
        reported.trouble.happened("refused")
        reported.now += 0.5
    reported.trouble.ended()
    reported.trouble.ended()
    assert reported.lines == [
        ("not-read", {"reason": "refused", "topic": "t"}),
        ("not-read", {"reason": "refused", "times": 121, "for_s": 60, "topic": "t"}),
        ("not-read", {"reason": "refused", "times": 241, "for_s": 120, "topic": "t"}),
        ("read", {"times": 300, "lasted_s": 150.0, "topic": "t"}),
    ]


def test_a_new_reason_is_reported_immediately() -> None:
    """Later ones are separate trouble."""
    reported = Reported()
    reported.trouble.happened("refused")
    reported.trouble.happened("no leader")
    reported.trouble.ended()
    reported.trouble.happened("refused")
    assert [(event, context.get("reason")) for event, context in reported.lines] == [
        ("not-read", "refused"), ("not-read", "no leader"), ("read", None), ("not-read", "refused"),
    ]  # fmt: skip


def test_short_trouble_is_not_reported() -> None:
    """Neither its beginning nor its end; what lasts is."""
    reported = Reported(patience_s=5.0)
    reported.trouble.happened("not there yet")
    reported.trouble.ended()
    assert reported.lines == []
    for _ in range(7):
        reported.trouble.happened("not there yet")
        reported.now += 1
    assert [context["times"] for _, context in reported.lines] == [6]
    assert reported.now - 100.0 < REMIND_S
    reported.trouble.ended()
    reported.trouble.happened("the wrong password", patient=False)
    assert [event for event, _ in reported.lines] == ["not-read", "read", "not-read"]
