"""Log lines of a consumer's troubles, through the standard logging module (client/README.md rules 30 and 31).

Loggers: `kafka_share_proxy.connections`, `.topics`, `.group`, `.requests`. A program that configures no logging gets
the warnings on stderr, which is Python's default.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass

import trio

from kafka_share_proxy.consumer.events import BackgroundEvent, PartitionsLost
from kafka_share_proxy.consumer.partitions import shown
from kafka_share_proxy.consumer.troubles import TROUBLES_MAX, Trouble, TroubleKind, TroubleObserver

ROOT = "kafka_share_proxy"
REMINDER_S = 60.0
"""Time after which a lasting trouble is logged again."""
CHANGED_S = 10.0
"""Time after which a changed trouble is logged again."""
LINES_PER_MINUTE = 20
PATIENCE_S = {
    TroubleKind.CONNECTION: 0.0,
    TroubleKind.TOPIC: 1.0,
    TroubleKind.GROUP: 1.0,
    TroubleKind.REQUEST: 5.0,
}
"""Time for which a trouble must last before it is logged (client/README.md rule 31)."""

_LOST = (
    ("max.poll.interval", "Poll more often, or raise max_poll_interval_s"),
    ("FENCED_INSTANCE_ID", "Check whether another member has the same group_instance_id"),
    ("session", "Check whether the process or the network stood still for longer than session_timeout_s"),
    ("UNKNOWN_MEMBER_ID", "Check whether the process or the network stood still for longer than session_timeout_s"),
    ("FENCED_MEMBER_EPOCH", "Check whether the process or the network stood still for longer than the session timeout"),
)
"""Part of a reason -> what to check."""


@dataclass(slots=True)
class _Line:
    since: float
    logged_at: float | None = None
    text: str = ""
    omitted: int = 0


class TroubleLog:
    """Log of the troubles of one client, with a limited number of lines per minute."""

    def __init__(self, name: str) -> None:
        """Prepare a log. The name begins every line."""
        self.observer = TroubleObserver(self.reported, self.ended)
        self._name = name
        self._loggers = {each: logging.getLogger(f"{ROOT}.{each.value}") for each in TroubleKind}
        self._lines: dict[tuple[TroubleKind, Hashable], _Line] = {}
        self._minute, self._in_minute, self._left_out = -1, 0, 0

    def reported(self, trouble: Trouble) -> None:
        now = trio.current_time()
        key = trouble.kind, trouble.subject
        if key not in self._lines and len(self._lines) >= TROUBLES_MAX:
            del self._lines[next(iter(self._lines))]
        line = self._lines.setdefault(key, _Line(now))
        if not self._is_due(line, trouble, now):
            line.omitted += 1
            return
        again = "" if line.logged_at is None else f" (for {now - line.since:.0f} s, {line.omitted + 1} attempts)"
        line.logged_at, line.text, line.omitted = now, trouble.text, 0
        advice = f". {trouble.advice}" if trouble.advice else ""
        self.warning(trouble.kind, f"{trouble.text}{again}{advice}")

    def ended(self, trouble: Trouble) -> None:
        line = self._lines.pop((trouble.kind, trouble.subject), None)
        if line is not None and line.logged_at is not None:
            lasted = trio.current_time() - line.since
            self._loggers[trouble.kind].info("%s: over after %.0f s: %s", self._name, lasted, trouble.text)

    def event(self, event: BackgroundEvent) -> None:
        if isinstance(event, PartitionsLost):
            advice = next((advice for part, advice in _LOST if part in event.reason), "")
            text = f"lost {shown(event.partitions)}: {event.reason}; other members may process their records"
            self.warning(TroubleKind.GROUP, f"{text}. {advice}" if advice else text)

    def warning(self, kind: TroubleKind, text: str) -> None:
        minute = int(trio.current_time() // 60)
        if minute != self._minute:
            self._minute, self._in_minute = minute, 0
        self._in_minute += 1
        if self._in_minute > LINES_PER_MINUTE:
            self._left_out += 1
            return
        omitted, self._left_out = self._left_out, 0
        tail = f" ({omitted} other warnings were left out)" if omitted else ""
        self._loggers[kind].warning("%s: %s%s", self._name, text, tail)

    def _is_due(self, line: _Line, trouble: Trouble, now: float) -> bool:
        if line.logged_at is None:
            return now - line.since >= PATIENCE_S[trouble.kind]
        pause = REMINDER_S if line.text == trouble.text else CHANGED_S
        return now - line.logged_at >= pause
