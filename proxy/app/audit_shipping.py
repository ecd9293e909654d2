"""Takes audit events out of their queue and writes them: to a file, a topic, or both. Nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import trio

from proxy.audit.events import lines
from proxy.audit.stream import Audit

POLL_S = 0.25
"""How long an event may wait in the queue."""
SLICE = 200
"""Cost of the events that are formatted in one go (`Event.cost`), about 2 ms; then others have their turn."""
FINISH_S = 3.0
"""At the end of the process: how long the last events may take."""


class Sink(Protocol):
    """Where lines of audit events are written."""

    name: str
    dropped: int

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

    async def learn(self, topic_ids: Iterable[bytes]) -> None:
        """Find out about those that are not known."""

    async def aclose(self) -> None:
        """Nobody asks any more."""


class AuditShipping:
    """The way of the events from the queue to the sinks."""

    def __init__(
        self,
        audit: Audit,
        sinks: Sequence[Sink],
        proxy_id: str,
        cluster: Callable[[], str | None],
        names: Names,
    ) -> None:
        self.audit = audit
        self.sinks = sinks
        self._proxy_id = proxy_id
        self._cluster = cluster
        self._names = names

    def dropped(self) -> Mapping[str, float]:
        """Events that were lost, by where."""
        return {"queue": self.audit.dropped} | {sink.name: sink.dropped for sink in self.sinks}

    async def run(self) -> None:
        """Ship until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                for sink in self.sinks:
                    nursery.start_soon(sink.run)
                while True:
                    await trio.sleep(POLL_S)
                    self.audit.tick()
                    await self._ship()
        finally:
            with trio.CancelScope(shield=True):
                await self._names.aclose()

    async def finish(self) -> None:
        """The process ends: what is left goes out, within FINISH_S. `run` must still be running."""
        with trio.move_on_after(FINISH_S):
            self.audit.end()
            await self._ship()
            for sink in self.sinks:
                await sink.written()

    async def _ship(self) -> None:
        """All events there are, a slice at a time."""
        while events := self.audit.take(SLICE):
            await self._names.learn({event.place.topic for event in events if isinstance(event.place.topic, bytes)})
            formatted = lines(events, self._proxy_id, self._cluster(), self._names.name)
            for sink in self.sinks:
                sink.offer(formatted)
            await trio.lowlevel.checkpoint()
