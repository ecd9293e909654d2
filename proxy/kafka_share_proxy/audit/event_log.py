"""Queue of audit events to be written, numbered and bounded, and their text: one JSON object per line.

The text between values is the same for each kind, so a line is joined from fragments that were made once. The C
extension `audit._event_log` does this, or the Python fallback here. `KERNEL` names the one in use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.audit.events import COSTS, FIELDS, VERSION, Place, as_json
from kafka_share_proxy.wire import kernels

try:
    from kafka_share_proxy.audit import _event_log
except ImportError:  # this was installed without a compiler
    _event_log = None  # type: ignore[assignment]

BUILT_VERSION = 1
"""`VERSION` of the extension that matches this file. An older one is not used."""
COMMON = 8
"""Values that every event has: proxy_id, seq, ts_ms, cluster, topic, partition, group, member."""


class EventLog(Protocol):
    """Bounded queue of unwritten events."""

    @property
    def seq(self) -> int:
        """Number of the last event, including dropped ones."""

    @property
    def dropped(self) -> int:
        """Events dropped because the queue was full."""

    def __len__(self) -> int: ...

    def offer(self, kind: str, place: Place, group: str | None, member: str | None, values: tuple[Any, ...], /) -> None:
        """Add an event with the current time. `values`: by `events.FIELDS` of the kind; JSON types or `LazyJson`.

        Raises KeyError for an unknown kind, and TypeError for a wrong number of values.
        """

    def topic_ids(self, cost_max: int, /) -> set[bytes]:
        """Return the topic ids in the events that `take` would remove."""

    def take(
        self, cost_max: int, proxy_id: str, cluster: str | None, topic_name: Callable[[bytes], str], /
    ) -> list[bytes]:
        """Remove the oldest events, as many as `cost_max` allows (`events.COSTS`) and at least one. Return their lines,
        line end included.
        """


def event_log(limit: int, wall_ms: Callable[[], int]) -> EventLog:
    """Return an empty log for at most `limit` events. `wall_ms`: milliseconds since 1970."""
    return _Log(limit, wall_ms, LAYOUTS, as_json)


def _layout(kind: str, fields: tuple[str, ...]) -> tuple[Any, ...]:
    begins = (
        *(f'{{"v":{VERSION},"proxy_id":', ',"seq":', ',"ts_ms":', f',"kind":"{kind}","cluster":'),
        *(',"topic":', ',"partition":', ',"group":', ',"member":'),
    )
    fragments = (*begins, *(f',"{name}":' for name in fields))
    return COSTS.get(kind, 1), *(fragment.encode() for fragment in fragments)


LAYOUTS = {kind: _layout(kind, fields) for kind, fields in FIELDS.items()}
"""Cost of writing an event, and the text before each of its values, by kind."""


# The Python fallback of the extension


class _Event(NamedTuple):
    seq: int
    ts_ms: int
    kind: str
    place: Place
    group: str | None
    member: str | None
    values: tuple[Any, ...]


class _PythonEventLog:
    """Python fallback of the log in C."""

    def __init__(
        self, limit: int, wall_ms: Callable[[], int], layouts: dict[str, tuple[Any, ...]], json: Callable[[Any], str]
    ) -> None:
        self._limit, self._wall_ms, self._layouts, self._json = limit, wall_ms, layouts, json
        self._queue = deque[_Event]()
        self.seq = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._queue)

    def offer(self, kind: str, place: Place, group: str | None, member: str | None, values: tuple[Any, ...]) -> None:
        expected = len(self._layouts[kind]) - 1 - COMMON
        if len(values) != expected:
            raise TypeError(f"{kind} has {expected} values, not {len(values)}")
        self.seq += 1
        if len(self._queue) >= self._limit:
            self.dropped += 1
            return
        self._queue.append(_Event(self.seq, self._wall_ms(), kind, place, group, member, values))

    def topic_ids(self, cost_max: int) -> set[bytes]:
        topics = (self._queue[at].place[0] for at in range(self._affordable(cost_max)))
        return {topic for topic in topics if isinstance(topic, bytes)}

    def take(
        self, cost_max: int, proxy_id: str, cluster: str | None, topic_name: Callable[[bytes], str]
    ) -> list[bytes]:
        lines = list[bytes]()
        for _ in range(self._affordable(cost_max)):
            seq, ts_ms, kind, (topic, partition), group, member, values = self._queue.popleft()
            name = topic_name(topic) if isinstance(topic, bytes) else topic
            values_of_line = (proxy_id, seq, ts_ms, cluster, name, partition, group, member, *values)
            texts = [self._json(value).encode() for value in values_of_line]
            fragments = self._layouts[kind][1:]
            lines.append(b"".join((*chain(*zip(fragments, texts, strict=True)), b"}\n")))
        return lines

    def _affordable(self, cost_max: int) -> int:
        """Return how many of the oldest events `cost_max` allows."""
        count = 0
        for event in self._queue:
            if cost_max <= 0:
                break
            cost_max -= self._layouts[event.kind][0]
            count += 1
        return count


KERNEL = kernels.choose("audit._event_log", _event_log, BUILT_VERSION)
_Log: Callable[..., EventLog] = _event_log.EventLog if KERNEL == "c" else _PythonEventLog
