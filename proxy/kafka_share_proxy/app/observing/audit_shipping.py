"""Transport of audit events from their log to a file, a topic, or both. It never makes a client wait.

A timer of the event loop converts pending events to lines, one slice at a time: waking a task would cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import trio

from kafka_share_proxy.app.observing.audit_topics import AuditedTopicNames
from kafka_share_proxy.audit.stream import Audit
from kafka_share_proxy.loop.interfaces import Timer, Timers

POLL_S = 0.5
"""Maximum seconds that an event waits in the log."""
SLICE = 2000
"""Cost of the events written in one slice (`events.COSTS`), about a millisecond, before other work runs."""
SLICE_PAUSE_S = 0.001
FINISH_S = 3.0
"""Seconds that the last events may take when the process ends."""


class Sink(Protocol):
    """Destination of lines of audit events."""

    name: str

    @property
    def dropped(self) -> int:
        """Events lost in this sink."""

    def offer(self, lines: Sequence[bytes]) -> None:
        """Queue lines for writing, or drop and count them."""

    async def run(self) -> None:
        """Write until cancelled."""

    async def written(self) -> None:
        """Wait until all queued lines are processed."""


class AuditShipping:
    """Transport of the events from the log to the sinks."""

    def __init__(
        self,
        audit: Audit,
        sinks: Sequence[Sink],
        proxy_id: str,
        cluster: Callable[[], str | None],
        names: AuditedTopicNames,
        timers: Timers,
    ) -> None:
        self.audit = audit
        self.sinks = sinks
        self._proxy_id = proxy_id
        self._cluster = cluster
        self._names = names
        self._timers = timers
        self._timer: Timer | None = None
        self._topics_to_query: Sequence[bytes] = ()
        """Nothing is written while topics are looked up."""
        self._lookup_requested = trio.Event()

    def dropped(self) -> Mapping[str, float]:
        """Return the number of lost events by place: the queue, or a sink."""
        return {"queue": self.audit.log.dropped} | {sink.name: sink.dropped for sink in self.sinks}

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                for sink in self.sinks:
                    nursery.start_soon(sink.run)
                self._poll()
                while True:
                    await self._lookup_requested.wait()
                    await self._names.learn(self._topics_to_query)
                    self._topics_to_query, self._lookup_requested = (), trio.Event()
                    self._write()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            with trio.CancelScope(shield=True):
                await self._names.aclose()

    async def finish(self) -> None:
        """Ship the remaining events within FINISH_S. `run` must still be running."""
        with trio.move_on_after(FINISH_S):
            self.audit.end()
            while len(self.audit.log):
                await self._names.learn(self.audit.log.topic_ids(SLICE))
                self._write()
                await trio.lowlevel.checkpoint()
            for sink in self.sinks:
                await sink.written()

    def _poll(self) -> None:
        self.audit.tick()
        log = self.audit.log
        if len(log) and not self._topics_to_query:
            self._topics_to_query = self._names.unknown(log.topic_ids(SLICE))
            if self._topics_to_query:
                self._lookup_requested.set()
            else:
                self._write()
        has_more = len(log) and not self._topics_to_query
        self._timer = self._timers.call_at(self._timers.now() + (SLICE_PAUSE_S if has_more else POLL_S), self._poll)

    def _write(self) -> None:
        lines = self.audit.log.take(SLICE, self._proxy_id, self._cluster(), self._names.name)
        for sink in self.sinks:
            sink.offer(lines)
