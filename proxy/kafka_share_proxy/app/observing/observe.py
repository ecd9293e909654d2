"""Observability for people and machines: log lines (structlog), counters and gauges (Prometheus).

The rooms below call `notes("event-name", key=value)`. This module assigns a level, counts the event and writes a line.
Events that occur per request are at DEBUG. Repeated lines are limited, so that one broken client cannot flood the log.
The last line before a pause announces it, and the number of omitted lines is logged afterwards. Secrets and record
contents are never logged (`redact`).
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
LEVELS: Mapping[str, int] = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_NAMES = {number: name for name, number in LEVELS.items()}

# Events of the shell itself.
STARTING = "starting"
CONNECTIONS_LOWERED = "connections-lowered"
SERVING = "serving"
STOPPING = "stopping"
STOPPED = "stopped"
STOPPED_AT_ONCE = "stopped-at-once"
DRAIN_INCOMPLETE = "drain-incomplete"
UPSTREAM_REACHED = "upstream-reached"
UPSTREAM_UNREACHABLE = "upstream-not-reachable"
UPSTREAM_ASKS_FOR_AUTHENTICATION = "upstream-asks-for-authentication"
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
SHARE_GROUPS_SERVED = "share-groups-served"
SHARE_GROUPS_PLACED = "share-groups-belong-here"
"""The state is loaded next (share-state-loaded), or another proxy serves them (share-groups-standby)."""
SHARE_GROUPS_NEED_RESTART = "share-groups-need-restart"
SHARE_GROUPS_UNDECIDED = "share-groups-undecided"
ADMIN_LISTENING = "admin-listening"
ADMIN_BAD_REQUEST = "admin-bad-request"

EVENT_LEVELS: Mapping[str, int] = {
    # Events of the shell itself.
    STARTING: INFO,
    CONNECTIONS_LOWERED: WARNING,
    SERVING: INFO,
    STOPPING: INFO,
    STOPPED: INFO,
    STOPPED_AT_ONCE: WARNING,
    DRAIN_INCOMPLETE: WARNING,
    UPSTREAM_REACHED: INFO,
    UPSTREAM_UNREACHABLE: WARNING,
    UPSTREAM_ASKS_FOR_AUTHENTICATION: WARNING,
    BROKER_LISTENING: INFO,
    BROKER_NOT_BOUND: ERROR,
    BROKER_VANISHED: WARNING,
    BROKER_FORGOTTEN: INFO,
    BROKER_BACK: INFO,
    "broker-not-answering": WARNING,
    "broker-answers": INFO,
    LINES_LEFT_OUT: WARNING,
    SHARE_GROUPS_SERVED: INFO,
    SHARE_GROUPS_PLACED: INFO,
    SHARE_GROUPS_NEED_RESTART: WARNING,
    SHARE_GROUPS_UNDECIDED: WARNING,
    "share-groups-decided": INFO,
    ADMIN_LISTENING: INFO,
    ADMIN_BAD_REQUEST: DEBUG,
    # Connections. Normal behaviour of clients and networks is DEBUG; events that need attention are not.
    "connection-closed": DEBUG,
    "connection-cut": INFO,
    "connection-limit": WARNING,
    "tls-handshake-limit": WARNING,
    "turn-long": WARNING,
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
    # Share groups.
    "share-fetch-at-bootstrap": WARNING,
    "share-group-deleted": INFO,
    "share-group-id-taken": WARNING,
    "share-group-not-served": WARNING,
    "share-group-offsets-altered": INFO,
    "share-group-offsets-deleted": INFO,
    "share-group-settings-changed": INFO,
    "share-locks-released": INFO,
    "share-renewal-refused": WARNING,
    "share-topics-deleted": INFO,
    "share-topics-not-checked": WARNING,
    "audit-not-written": WARNING,
    "audit-sees-part": INFO,
    "log-end-not-known": WARNING,
    "share-state-refused": WARNING,
    # Share state in a topic.
    "share-groups-off": ERROR,
    "share-groups-on": INFO,
    "share-groups-standby": INFO,
    "share-state-loaded": INFO,
    "share-state-lost": ERROR,
    "share-state-ignored": WARNING,
    "share-state-unreadable": ERROR,
    "share-state-old-owner": WARNING,
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
    "share-state-given-up": INFO,
    "share-state-topic-lost": ERROR,
    "share-state-restored": WARNING,
    "state-expiration-not-known": INFO,
    "state-message-bytes-low": WARNING,
    "state-message-bytes-not-known": INFO,
    # Individual commits, and their state in a topic.
    "commit-refused": WARNING,
    "ranges-not-shown": WARNING,
    "ranges-not-ended": WARNING,
    "ranges-not-checked": WARNING,
    "ranges-of-group-ended": INFO,
    "individual-commits-off": ERROR,
    "individual-commits-on": INFO,
    "individual-commits-standby": INFO,
    "commit-state-loaded": INFO,
    "commit-state-lost": ERROR,
    "commit-state-ignored": WARNING,
    "commit-state-unreadable": ERROR,
    "commit-state-old-owner": WARNING,
    "commit-state-given-up": INFO,
    "commit-state-topic-lost": ERROR,
    "commit-state-restored": WARNING,
    "commit-state-not-followed": WARNING,
    "commit-state-followed": INFO,
    "commit-state-read-anew": INFO,
    "commit-groups-too-many": WARNING,
    "commit-groups-not-known": ERROR,
    "commit-groups-known": INFO,
    # Several proxies.
    "fleet-table": INFO,
    "peer-message-unknown": INFO,
    "peer-linked": INFO,
    "peer-lost": WARNING,
    "peer-refused": WARNING,
    "peer-unreachable": WARNING,
    "peer-reached": INFO,
    # Views.
    "key-filter-refused": DEBUG,
    "view-batch-unreadable": WARNING,
    "view-created": INFO,
    "view-grown": INFO,
    "view-replaced": WARNING,
    "view-refused": WARNING,
    "view-not-grown": ERROR,
    "view-produce-refused": WARNING,
    "view-binding-not-stored": WARNING,
    "view-topic-created": INFO,
    "view-state-off": WARNING,
    "view-state-on": INFO,
    "view-state-not-read": WARNING,
    "view-state-read": INFO,
    "view-state-ignored": WARNING,
    "views-not-watched": WARNING,
    "views-watched": INFO,
    "another-proxy": WARNING,
    "proxy-group-trouble": INFO,
    "proxy-group-answers": INFO,
}
"""Event -> level. An event that is not listed is a WARNING, because it should not pass unnoticed."""

LINES_MAX = 10
"""Maximum number of lines of one event with one reason in one window."""
EVENT_LINES_MAX = 100
"""Maximum number of lines of one event in one window, for all reasons together."""
WINDOW_S = 60.0
KINDS_MAX = 1_000
"""Maximum number of kinds of lines remembered. The oldest is evicted first."""
TEXT_MAX = 500
"""Maximum characters of one value in a line, because it may quote bytes of a peer."""

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
    counts: Counter[str] = field(default_factory=Counter)
    _kinds: OrderedDict[tuple[str, str], _Kind] = field(default_factory=OrderedDict)
    _limited: set[tuple[str, str]] = field(default_factory=set)
    """Kinds with omitted lines that are not reported yet."""

    def __call__(self, event: str, /, **context: Any) -> None:
        """Record an event."""
        self.counts[event] += 1
        level = EVENT_LEVELS.get(event, WARNING)
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
        """Return the number of lines omitted before this one, or None if this line must be omitted too.

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
        """Return the fields about other lines of this kind: the number omitted before, and for how long more
        will be.
        """
        said: dict[str, Any] = {"left_out_before": left_out} if left_out else {}
        full = [
            self._kinds[name, reason] for name, reason, lines_max in kinds if self._is_full(name, reason, lines_max)
        ]
        if full:
            said["next_ones_left_out_for_s"] = round(max(kind.began for kind in full) + WINDOW_S - self.clock())
        return said

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
                told = {"of": event, "reason": redact("reason", reason), "lines": kind.left_out}
                kind.left_out = 0
                self.emit(EVENT_LEVELS[LINES_LEFT_OUT], LINES_LEFT_OUT, told)

    def _counted(self, event: str, reason: str, lines_max: int) -> int | None:
        """Return the number of lines of this kind omitted before, or None if this line must be omitted too."""
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
    """Return the loggable form of a value: no secrets, no bytes, no long text."""
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
    """Return the call stack of an error, the innermost last, without values and therefore without secrets."""
    frames = traceback.extract_tb(error.__traceback__)[-TRACE_MAX:]
    return " > ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in frames)


def log_lines(log_format: Literal["console", "json"], stream: TextIO = sys.stderr) -> Emit:
    """Set up the log, with one line per event on `stream`."""
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


def _structlog() -> Any:
    """Import structlog without rich, which it would load for stack traces: 4 MiB that are not used here."""
    module, sys.modules["rich"] = sys.modules.get("rich"), None  # type: ignore[assignment]  # means: cannot be had
    try:
        import structlog
    finally:
        del sys.modules["rich"]
        if module is not None:
            sys.modules["rich"] = module
    return structlog


def _level_name(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["level"] = _NAMES[line.pop("_level")]
    return line


Kind = Literal["counter", "gauge", "histogram"]


class Distribution(Protocol):
    """Values of a histogram."""

    total: float

    def cumulative(self) -> Iterable[tuple[str, int]]:
        """Return (upper bound, number of values up to it), from the lowest to "+Inf"."""


Figure = float | Distribution
Reading = Figure | Mapping[str, Figure] | Mapping[tuple[str, ...], Figure]
"""One figure, or one per value of the label, or per tuple of values of several labels."""


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: Kind
    help: str
    read: Callable[[], Reading]
    labels: tuple[str, ...]


class Metrics:
    """Metrics that are computed only when they are scraped."""

    def __init__(self) -> None:
        self._metrics: list[_Metric] = []
        self._snapshots: list[Callable[[], Iterable[None] | None]] = []

    def before(self, take_snapshot: Callable[[], Iterable[None] | None]) -> None:
        """Register a call before each scrape, for work shared by several metrics.

        If it takes long, it returns an iterable of steps.
        """
        self._snapshots.append(take_snapshot)

    def add(self, name: str, kind: Kind, help_text: str, read: Callable[[], Reading], *labels: str) -> None:
        """Add a metric named `ksp_NAME`. With labels, `read` returns a mapping by label value, or by tuples of
        several.
        """
        self._metrics.append(_Metric(f"ksp_{name}", kind, help_text, read, labels))

    def render(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return b"".join(self.steps())

    def steps(self) -> Iterator[bytes]:
        """Yield the text in pieces, some of them empty. Clients may be served in between."""
        # Imported at the first scrape (see admin): a proxy without scrapes does not need these several MiB.
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest

        for take_snapshot in self._snapshots:
            for _ in take_snapshot() or ():
                yield b""
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        yield generate_latest(registry)
        for metric in self._metrics:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_collector(metric))
            yield generate_latest(registry)


def _by_labels(metric: _Metric) -> list[tuple[tuple[str, ...], Figure]]:
    """Return (label values, figure), sorted."""
    reading = metric.read()
    if not isinstance(reading, Mapping):
        return [((), reading)]
    named = {(label,) if isinstance(label, str) else label: value for label, value in reading.items()}
    return sorted(named.items(), key=itemgetter(0))


def _collector(metric: _Metric) -> Collector:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector

    families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}

    class Snapshot(Collector):
        """Current value of one metric."""

        def collect(self) -> Iterator[Family]:
            """Yield the family of this metric, with its samples."""
            made: Any = families[metric.kind](metric.name, metric.help, labels=metric.labels)
            for labels, value in _by_labels(metric):
                if isinstance(value, int | float):
                    made.add_metric(labels, value)
                else:
                    made.add_metric(labels, list(value.cumulative()), value.total)
            yield made

    return Snapshot()
