"""Takes audit events out of their log and writes them: to a file, a topic, or both. Nobody waits for it.

Theory of operation. The loop calls here several times a second, and what waits becomes lines at once, a slice at a
time; no task is woken, which would cost more than the lines. Only where the name of a topic is not known, a task asks
for it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import trio

from proxy.audit.stream import Audit
from proxy.loop.interfaces import Timer, Timers

POLL_S = 0.5
"""How long an event may wait in the log."""
SLICE = 2000
"""Cost of the events that are written in one go (`events.COSTS`), about a millisecond; then others have their turn."""
SLICE_PAUSE_S = 0.001
FINISH_S = 3.0
"""At the end of the process: how long the last events may take."""


class Sink(Protocol):
    """Where lines of audit events are written."""

    name: str

    @property
    def dropped(self) -> int:
        """Events that were lost here."""

    def offer(self, lines: Sequence[bytes]) -> None:
        """Write them some time soon, or drop and count them."""

    async def run(self) -> None:
        """Write until cancelled."""

    async def written(self) -> None:
        """Wait until nothing waits any more."""


class Names(Protocol):
    """What topics are called (`audit_topics.AuditedTopicNames`)."""

    def name(self, topic_id: bytes) -> str:
        """The name, or something in its place."""

    def unknown(self, topic_ids: Iterable[bytes]) -> Sequence[bytes]:
        """Those that would have to be found out about."""

    async def learn(self, topic_ids: Iterable[bytes]) -> None:
        """Find out about those that are not known."""

    async def aclose(self) -> None:
        """Nobody asks any more."""


class AuditShipping:
    """The way of the events from the log to the sinks."""

    def __init__(
        self,
        audit: Audit,
        sinks: Sequence[Sink],
        proxy_id: str,
        cluster: Callable[[], str | None],
        names: Names,
        timers: Timers,
    ) -> None:
        self.audit = audit
        self.sinks = sinks
        self._proxy_id = proxy_id
        self._cluster = cluster
        self._names = names
        self._timers = timers
        self._timer: Timer | None = None
        self._unknown: Sequence[bytes] = ()
        """Topics that are being asked for; nothing is written meanwhile."""
        self._asked = trio.Event()

    def dropped(self) -> Mapping[str, float]:
        """Events that were lost, by where."""
        return {"queue": self.audit.log.dropped} | {sink.name: sink.dropped for sink in self.sinks}

    async def run(self) -> None:
        """Ship until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                for sink in self.sinks:
                    nursery.start_soon(sink.run)
                self._poll()
                while True:
                    await self._asked.wait()
                    await self._names.learn(self._unknown)
                    self._unknown, self._asked = (), trio.Event()
                    self._write()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            with trio.CancelScope(shield=True):
                await self._names.aclose()

    async def finish(self) -> None:
        """The process ends: what is left goes out, within FINISH_S. `run` must still be running."""
        with trio.move_on_after(FINISH_S):
            self.audit.end()
            while len(self.audit.log):
                await self._names.learn(self.audit.log.topic_ids(SLICE))
                self._write()
                await trio.lowlevel.checkpoint()
            for sink in self.sinks:
                await sink.written()

    def _poll(self) -> None:
        """Write a slice of what there is; the rest soon."""
        self.audit.tick()
        log = self.audit.log
        if len(log) and not self._unknown:
            self._unknown = self._names.unknown(log.topic_ids(SLICE))
            if self._unknown:
                self._asked.set()
            else:
                self._write()
        has_more = len(log) and not self._unknown
        self._timer = self._timers.call_at(self._timers.now() + (SLICE_PAUSE_S if has_more else POLL_S), self._poll)

    def _write(self) -> None:
        lines = self.audit.log.take(SLICE, self._proxy_id, self._cluster(), self._names.name)
        for sink in self.sinks:
            sink.offer(lines)
