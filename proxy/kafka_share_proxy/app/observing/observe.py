"""Log lines for people and machines (structlog).

Events that occur per request are at DEBUG. Repeated lines are limited, so that one broken client cannot flood the log.
Secrets and record contents are never logged (`redact`).
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from kafka_share_proxy.app.deferred_modules import STRUCTLOG, deferred
from kafka_share_proxy.loop.log_levels import DEBUG, ERROR, INFO, WARNING, EventLevels

LEVELS: Mapping[str, int] = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_NAMES = {number: name for name, number in LEVELS.items()}

# Events of the shell itself.
STARTING = "starting"
KERNELS_IN_PYTHON = "kernels-in-python"
"""Requests cost more CPU than with the kernels in C."""
CONNECTIONS_LOWERED = "connections-lowered"
SERVING = "serving"
STOPPING = "stopping"
STOPPED = "stopped"
STOPPED_AT_ONCE = "stopped-at-once"
DRAIN_INCOMPLETE = "drain-incomplete"
UPSTREAM_REACHED = "upstream-reached"
UPSTREAM_UNREACHABLE = "upstream-not-reachable"
UPSTREAM_REQUIRES_AUTHENTICATION = "upstream-asks-for-authentication"
BROKER_LISTENING = "broker-listening"
BROKER_NOT_BOUND = "broker-not-bound"
BROKER_UNREACHABLE = "upstream-unreachable"
"""The upstream connection of a client could not be made (logged by the data plane)."""
BROKER_VANISHED = "broker-vanished"
BROKER_FORGOTTEN = "broker-forgotten"
BROKER_BACK = "broker-back"
"""The broker is in Metadata again, within the grace time."""
LINES_LEFT_OUT = "lines-left-out"
"""Number of lines that the limiter omitted, logged after its window."""
ADMIN_LISTENING = "admin-listening"
ADMIN_BAD_REQUEST = "admin-bad-request"
EXCEPTION_IGNORED = "exception-ignored"
LOOP_BLOCKED = "loop-blocked"
LOOP_CONTINUES = "loop-continues"
RELOADED = "reloaded"
RELOAD_REFUSED = "reload-refused"
"""A setting or a file is invalid, and nothing was changed."""
RELOAD_NEEDS_RESTART = "reload-needs-restart"
WORKER_ENDED = "worker-ended"
WORKERS_REPLACED = "workers-replaced"
WORKERS_NOT_REPLACED = "workers-not-replaced"
"""New workers did not start, and those before them continue."""
SPANS_NOT_EXPORTED = "spans-not-exported"

EVENT_LEVELS: EventLevels = {
    # Events of the shell itself.
    STARTING: INFO,
    KERNELS_IN_PYTHON: WARNING,
    CONNECTIONS_LOWERED: WARNING,
    SERVING: INFO,
    STOPPING: INFO,
    STOPPED: INFO,
    STOPPED_AT_ONCE: WARNING,
    DRAIN_INCOMPLETE: WARNING,
    UPSTREAM_REACHED: INFO,
    UPSTREAM_UNREACHABLE: WARNING,
    UPSTREAM_REQUIRES_AUTHENTICATION: WARNING,
    BROKER_LISTENING: INFO,
    BROKER_NOT_BOUND: ERROR,
    BROKER_VANISHED: WARNING,
    BROKER_FORGOTTEN: INFO,
    BROKER_BACK: INFO,
    "broker-not-answering": WARNING,
    "broker-answers": INFO,
    LINES_LEFT_OUT: WARNING,
    ADMIN_LISTENING: INFO,
    ADMIN_BAD_REQUEST: DEBUG,
    EXCEPTION_IGNORED: WARNING,
    LOOP_BLOCKED: ERROR,
    LOOP_CONTINUES: WARNING,
    RELOADED: INFO,
    RELOAD_REFUSED: ERROR,
    RELOAD_NEEDS_RESTART: WARNING,
    WORKER_ENDED: ERROR,
    WORKERS_REPLACED: INFO,
    WORKERS_NOT_REPLACED: ERROR,
    SPANS_NOT_EXPORTED: WARNING,
    # Connections. Normal behaviour of clients and networks is DEBUG; events that need attention are not.
    "connection-closed": DEBUG,
    "connection-moved": DEBUG,
    "connection-not-moved": DEBUG,
    "connection-cut": INFO,
    "connection-limit": WARNING,
    "tls-handshake-limit": WARNING,
    "server-name-refused": WARNING,
    "proxy-header-refused": WARNING,
    "turn-long": WARNING,
    "trace-began": INFO,
    "trace-ended": INFO,
    "accept-failed": WARNING,
    BROKER_UNREACHABLE: WARNING,
    "client-stalled": WARNING,
    "client-protocol-error": WARNING,
    "upstream-protocol-error": WARNING,
    "request-refused": WARNING,
    # Internal errors, logged with a stack trace.
    "connection-failed": ERROR,
    "handler-failed": ERROR,
    "callback-failed": ERROR,
    "trace-failed": ERROR,
    # Audit.
    "audit-not-written": WARNING,
    "audit-sees-part": INFO,
    # State in topics.
    "state-topic-created": INFO,
    "state-topic-unsafe": ERROR,
    "state-topic-safe": INFO,
    "state-topic-at-risk": WARNING,
    "state-topic-risk-ended": INFO,
    "state-append-failed": WARNING,
    "state-identity-refused": WARNING,
    "state-link-failed": WARNING,
    "state-link-made": INFO,
    "state-link-lost": INFO,
    "state-link-closed-idle": DEBUG,
    "state-view-failed": WARNING,
    "state-view-found": INFO,
    "state-expiration-not-known": INFO,
    "state-message-bytes-low": WARNING,
    "state-message-bytes-not-known": INFO,
    # Several proxies.
    "fleet-table": INFO,
    "peer-message-unknown": INFO,
    "peer-linked": INFO,
    "peer-lost": WARNING,
    "peer-refused": WARNING,
    "peer-unreachable": WARNING,
    "peer-reached": INFO,
    "another-proxy": WARNING,
    "proxy-group-trouble": INFO,
    "proxy-group-answers": INFO,
}
"""Level of each event of the platform. `LogNotes.levels` adds those of the features."""

LINES_MAX = 10
"""Maximum number of lines of one event with one reason in one window."""
EVENT_LINES_MAX = 100
"""Maximum number of lines of one event in one window, for all reasons together."""
WINDOW_S = 60.0
KINDS_MAX = 1_000
"""Maximum number of kinds of lines remembered. The oldest is evicted first."""
TEXT_MAX = 500
"""Maximum characters of one value in a line."""

TRACE_MAX = 20
"""Maximum number of stack frames in a line."""

SECRET_WORDS = ("password", "secret", "token", "credential", "auth_bytes")

Emit = Callable[[int, str, Mapping[str, Any]], None]


@dataclass(slots=True)
class _Kind:
    """Number of lines of one kind in its window."""

    began: float
    lines: int = 0
    left_out: int = 0


@dataclass(slots=True)
class LogNotes:
    """Implementation of `interfaces.Notes`: counts events, writes those at or above the level, limits repeated ones."""

    emit: Emit
    level: int = INFO
    clock: Callable[[], float] = time.monotonic
    levels: EventLevels = field(default_factory=lambda: EVENT_LEVELS)
    """Level of each event. An event that is not listed is a WARNING, because it should not pass unnoticed."""
    counts: Counter[str] = field(default_factory=Counter)
    _kinds: OrderedDict[tuple[str, str], _Kind] = field(default_factory=OrderedDict)
    _limited: set[tuple[str, str]] = field(default_factory=set)
    """Kinds with omitted lines that are not reported yet."""

    def __call__(self, event: str, /, **context: Any) -> None:
        """Record an event."""
        self.counts[event] += 1
        level = self.levels.get(event, WARNING)
        if level < self.level:
            return
        limits: dict[str, Any] = {}
        if level > DEBUG:
            kinds = ((event, "*", EVENT_LINES_MAX), (event, str(context.get("reason", "")), LINES_MAX))
            self._report_left_out({(name, reason) for name, reason, _ in kinds})
            left_out = self._admitted(*kinds)
            if left_out is None:
                return
            limits = self._limits(kinds, left_out)
        line = {key: redact(key, value) for key, value in context.items()} | limits
        error = context.get("error")
        if level >= ERROR and isinstance(error, BaseException):
            line["trace"] = trace(error)
        self.emit(level, event, line)

    def _admitted(self, every: tuple[str, str, int], of_reason: tuple[str, str, int]) -> int | None:
        """Return the number of lines omitted before this one, or None.

        An omitted line is not added to the remembered kinds: 1,000 reasons would evict the limits.
        """
        before = self._counted(*every)
        if before is None:
            return None
        before_of_reason = self._counted(*of_reason)
        if before_of_reason is None:
            self._kinds[every[:2]].lines -= 1
            return None
        return max(before, before_of_reason)

    def _limits(self, kinds: Iterable[tuple[str, str, int]], left_out: int) -> dict[str, Any]:
        suppressed: dict[str, Any] = {"left_out_before": left_out} if left_out else {}
        full = [
            self._kinds[name, reason] for name, reason, lines_max in kinds if self._is_full(name, reason, lines_max)
        ]
        if full:
            suppressed["next_ones_left_out_for_s"] = round(max(kind.began for kind in full) + WINDOW_S - self.clock())
        return suppressed

    def _is_full(self, event: str, reason: str, lines_max: int) -> bool:
        kind = self._kinds.get((event, reason))
        return kind is not None and kind.lines >= lines_max

    def _report_left_out(self, coming: Set[tuple[str, str]]) -> None:
        """Report omitted lines of other kinds whose window is over, because no later line may report them."""
        now = self.clock()
        for event, reason in sorted(self._limited - coming):
            kind = self._kinds.get((event, reason))
            if kind is not None and now - kind.began < WINDOW_S:
                continue
            self._limited.discard((event, reason))
            if kind is not None and reason != "*" and kind.left_out:
                fields = {"of": event, "reason": redact("reason", reason), "lines": kind.left_out}
                kind.left_out = 0
                self.emit(EVENT_LEVELS[LINES_LEFT_OUT], LINES_LEFT_OUT, fields)

    def _counted(self, event: str, reason: str, lines_max: int) -> int | None:
        """Return None if this line must be omitted."""
        now = self.clock()
        kind = self._kinds.get((event, reason))
        if kind is None or now - kind.began >= WINDOW_S:
            before = 0 if kind is None else kind.left_out
            self._kinds[event, reason] = _Kind(now, 1)
            self._kinds.move_to_end((event, reason))
            self._limited.discard((event, reason))
            if len(self._kinds) > KINDS_MAX:
                self._limited.discard(self._kinds.popitem(last=False)[0])
            return before
        if kind.lines >= lines_max:
            kind.left_out += 1
            self._limited.add((event, reason))
            return None
        kind.lines += 1
        return 0


def redact(key: str, value: Any) -> Any:
    """Leave out secrets, bytes and long text."""
    if any(word in key.lower() for word in SECRET_WORDS):
        return "[hidden]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, BaseException):
        value = f"{type(value).__name__}: {value}" if str(value) else type(value).__name__
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}... ({len(text)} characters)"


def trace(error: BaseException) -> str:
    """Return the call stack, the innermost last, without values and therefore without secrets."""
    frames = traceback.extract_tb(error.__traceback__)[-TRACE_MAX:]
    return " > ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in frames)


def log_lines(log_format: Literal["console", "json"], stream: TextIO = sys.stderr) -> Emit:
    """Return a function that writes a line for each event."""
    structlog = _structlog()
    processors: list[Any] = [_level_name, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if log_format == "json":
        processors.append(structlog.processors.JSONRenderer())
    else:
        processors.append(structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=34))
    logger = structlog.wrap_logger(structlog.WriteLogger(stream), processors=processors, cache_logger_on_first_use=True)

    def emit(level: int, event: str, context: Mapping[str, Any]) -> None:
        # The log may be unwritable (a closed pipe, a full disk). Clients are served nevertheless.
        with suppress(OSError, ValueError):
            logger.msg(event, _level=level, **context)

    return emit


def with_fields(emit: Emit, **fields: object) -> Emit:
    """Return a function that writes lines with further fields."""
    return lambda level, event, context: emit(level, event, {**fields, **context})


def load() -> None:
    """Load what writes log lines: 25 ms."""
    _structlog()


def _structlog() -> Any:
    """Import structlog without rich, which it would load for stack traces: 4 MiB."""
    module, sys.modules["rich"] = sys.modules.get("rich"), None  # type: ignore[assignment]  # means: cannot be had
    try:
        with deferred(STRUCTLOG):
            import structlog
    finally:
        del sys.modules["rich"]
        if module is not None:
            sys.modules["rich"] = module
    return structlog


def _level_name(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["level"] = _NAMES[line.pop("_level")]
    return line
