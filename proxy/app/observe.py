"""What happened, for people and for machines: log lines (structlog), counters and gauges (Prometheus).

Rooms below say `notes("event-name", key=value)`; here each event has a level, is counted, and becomes a line. Nothing
that happens per request is above DEBUG. Equal lines are limited, so that one broken client cannot drown the rest; the
last one for a while says so, and what was left out is told afterwards. Secrets and record contents never reach a line
(`redact`).
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

# What the shell itself says.
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
"""A client's upstream connection could not be made (said by the data plane)."""
BROKER_VANISHED = "broker-vanished"
BROKER_FORGOTTEN = "broker-forgotten"
BROKER_BACK = "broker-back"
"""The cluster names it again, within the grace time."""
LINES_LEFT_OUT = "lines-left-out"
"""What the limiter kept back, once its window is over."""
SHARE_GROUPS_SERVED = "share-groups-served"
SHARE_GROUPS_PLACED = "share-groups-belong-here"
"""Their state is loaded next (share-state-loaded), or another proxy serves them (share-groups-standby)."""
SHARE_GROUPS_NEED_RESTART = "share-groups-need-restart"
SHARE_GROUPS_UNDECIDED = "share-groups-undecided"
ADMIN_LISTENING = "admin-listening"
ADMIN_BAD_REQUEST = "admin-bad-request"

EVENT_LEVELS: Mapping[str, int] = {
    # The shell's own.
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
    # Connections: what clients and networks do all day is DEBUG, what somebody should look at is not.
    "connection-closed": DEBUG,
    "connection-cut": INFO,
    "connection-limit": WARNING,
    "turn-long": WARNING,
    "accept-failed": WARNING,
    BROKER_UNREACHABLE: WARNING,
    "client-stalled": WARNING,
    "client-protocol-error": WARNING,
    "upstream-protocol-error": WARNING,
    "request-refused": WARNING,
    # Faults of ours: these come with a stack trace.
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
    "state-append-failed": WARNING,
    "state-identity-refused": WARNING,
    "state-link-failed": WARNING,
    "state-link-made": INFO,
    "state-link-lost": INFO,
    "state-view-failed": WARNING,
    "state-view-found": INFO,
    "share-state-given-up": INFO,
    "share-state-topic-lost": ERROR,
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
    "commit-state-not-followed": WARNING,
    "commit-state-followed": INFO,
    "commit-state-read-anew": INFO,
    "commit-groups-too-many": WARNING,
    "commit-groups-not-known": ERROR,
    "commit-groups-known": INFO,
    # Several proxies.
    "fleet-table": INFO,
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
"""Event -> level; an event that is not listed is a WARNING, for somebody has something to tell."""

LINES_MAX = 10
"""Lines of one event with one reason in one window."""
EVENT_LINES_MAX = 100
"""Lines of one event in one window, whatever their reasons."""
WINDOW_S = 60.0
KINDS_MAX = 1_000
"""Kinds of lines remembered; the oldest is forgotten first."""
TEXT_MAX = 500
"""Characters of one value in a line: a peer's bytes may be quoted in it."""

TRACE_MAX = 20
"""Calls of one stack trace in a line."""

SECRET_WORDS = ("password", "secret", "token", "credential", "auth_bytes")

Emit = Callable[[int, str, Mapping[str, Any]], None]


@dataclass(slots=True)
class _Kind:
    """How often one kind of line came in its window."""

    began: float
    lines: int = 0
    left_out: int = 0


@dataclass(slots=True)
class LogNotes:
    """`interfaces.Notes`: counts every event, writes those at or above the level, limits equal ones."""

    emit: Emit
    level: int = INFO
    clock: Callable[[], float] = time.monotonic
    counts: Counter[str] = field(default_factory=Counter)
    _kinds: OrderedDict[tuple[str, str], _Kind] = field(default_factory=OrderedDict)
    _limited: set[tuple[str, str]] = field(default_factory=set)
    """Kinds of which lines were left out and not told yet."""

    def __call__(self, event: str, /, **context: Any) -> None:
        """Something happened."""
        self.counts[event] += 1
        level = EVENT_LEVELS.get(event, WARNING)
        if level < self.level:
            return
        line = {key: redact(key, value) for key, value in context.items()}
        if level > DEBUG:
            kinds = ((event, "*", EVENT_LINES_MAX), (event, str(context.get("reason", "")), LINES_MAX))
            self._tell_left_out({(name, reason) for name, reason, _ in kinds})
            counted = [self._counted(name, reason, lines_max) for name, reason, lines_max in kinds]
            if any(each is None for each in counted):
                return
            line |= self._limits(kinds, max(each or 0 for each in counted))
        error = context.get("error")
        if level >= ERROR and isinstance(error, BaseException):
            line["trace"] = trace(error)
        self.emit(level, event, line)

    def _limits(self, kinds: Iterable[tuple[str, str, int]], left_out: int) -> dict[str, Any]:
        """What a line says of others of its kind: how many did not come before it, and that none will for a while."""
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

    def _tell_left_out(self, coming: Set[tuple[str, str]]) -> None:
        """Lines of other kinds that were left out, once their window is over: they may have been the last."""
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
        """None: this line is one too many. Else how many of its kind were left out before it."""
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
    """What may be written of a value: never a secret, never bytes, never a page of text."""
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
    """The calls that led to an error, the innermost last; no values, so nothing secret is in it."""
    frames = traceback.extract_tb(error.__traceback__)[-TRACE_MAX:]
    return " > ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in frames)


def log_lines(log_format: Literal["console", "json"], stream: TextIO = sys.stderr) -> Emit:
    """Set up the log: one line an event, to `stream`."""
    structlog = _structlog()
    processors: list[Any] = [_level_name, structlog.processors.TimeStamper(fmt="iso", utc=True)]
    if log_format == "json":
        processors.append(structlog.processors.JSONRenderer())
    else:
        processors.append(structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=34))
    logger = structlog.wrap_logger(structlog.WriteLogger(stream), processors=processors, cache_logger_on_first_use=True)

    def emit(level: int, event: str, context: Mapping[str, Any]) -> None:
        # Nobody may read the log any more (a closed pipe, a full disk): clients are served all the same.
        with suppress(OSError, ValueError):
            logger.msg(event, _level=level, **context)

    return emit


def _structlog() -> Any:
    """structlog without rich, which it would load for stack traces: 4 MiB for something that is not used here."""
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
    """What a histogram shows."""

    total: float

    def cumulative(self) -> Iterable[tuple[str, int]]:
        """(upper bound, values up to it), from the lowest to "+Inf"."""


Figure = float | Distribution
Reading = Figure | Mapping[str, Figure] | Mapping[tuple[str, ...], Figure]
"""One figure, or one for each value of the label, or of each tuple of them."""


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    kind: Kind
    help: str
    read: Callable[[], Reading]
    labels: tuple[str, ...]


class Metrics:
    """Figures read when somebody asks for them, so that they cost nothing while nobody does."""

    def __init__(self) -> None:
        self._metrics: list[_Metric] = []
        self._snapshots: list[Callable[[], Iterable[None] | None]] = []

    def before(self, take_snapshot: Callable[[], Iterable[None] | None]) -> None:
        """Called once before figures are read: what costs something is looked at once, not for every figure.

        What takes long gives its steps.
        """
        self._snapshots.append(take_snapshot)

    def add(self, name: str, kind: Kind, help_text: str, read: Callable[[], Reading], *labels: str) -> None:
        """A figure under `ksp_NAME`; `read` gives a mapping by label, where there are several by their tuples."""
        self._metrics.append(_Metric(f"ksp_{name}", kind, help_text, read, labels))

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return b"".join(self.steps())

    def steps(self) -> Iterator[bytes]:
        """The same in pieces, some of them empty: clients may be served in between."""
        # Imported at the first scrape (see admin): a proxy that nobody scrapes has no use for several MiB of it.
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
    """(values of the labels, figure), in order."""
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
        """One figure at this moment."""

        def collect(self) -> Iterator[Family]:
            """The family of this metric, with its samples."""
            made: Any = families[metric.kind](metric.name, metric.help, labels=metric.labels)
            for labels, value in _by_labels(metric):
                if isinstance(value, int | float):
                    made.add_metric(labels, value)
                else:
                    made.add_metric(labels, list(value.cumulative()), value.total)
            yield made

    return Snapshot()
