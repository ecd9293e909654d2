"""Takes audit events in: a bounded log of them, and what is summed up before it becomes an event.

Theory of operation. Whoever does something says so here with a plain call: nothing is formatted, looked up or waited
for. `app.audit_shipping` calls `tick` several times a second, takes lines out of the log and has them written. Every
event has the next number of `seq`; one that finds the log full is dropped but has used up its number, so whoever reads
the events sees the gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.audit.event_log import event_log
from proxy.audit.events import NOWHERE, Place
from proxy.audit.fetches import TOLD_EVERY_S, Fetches
from proxy.audit.loads import Loads
from proxy.audit.sampling import KeySampling
from proxy.loop.interfaces import Timers

SCOPE_EVERY_S = 3600.0
"""How often it is said again what cannot be seen: files of a day say it, too."""


class Audit:
    """One per process, where audit is on."""

    def __init__(
        self, timers: Timers, queue_events: int, looks_per_s: float = 0.0, load_interval_s: float = 60.0
    ) -> None:
        """`looks_per_s`: how often keys are looked at; 0: never."""
        self._timers = timers
        self._load_interval_s = load_interval_s
        self.log = event_log(queue_events, timers.wall_ms)
        """Events that wait to be written."""
        self.offer = self.log.offer
        """See EventLog.offer; told often, so without a call of ours in between."""
        self.now, self.wall_ms = timers.now, timers.wall_ms
        """Seconds, of the loop's clock; milliseconds since 1970."""
        now = timers.now()
        self.loads = Loads(now)
        """What happens to partitions."""
        self.keys = KeySampling(timers, looks_per_s, self.loads.add_sample)
        """Told of what is read, where its bytes are."""
        self.fetches = Fetches(self._fetched)
        """What readers are given."""
        self.on_sums: list[Callable[[], object]] = []
        """Called before loads or fetches are told: what sums them up by itself adds them then."""
        self.on_interval: list[Callable[[], object]] = []
        """Called before load is told: what has something to say once in an interval."""
        self._scopes: dict[str, tuple[str, str]] = {}
        self._load_due, self._fetches_due = now + load_interval_s, now + TOLD_EVERY_S
        self._scope_due = now + SCOPE_EVERY_S

    # What is told

    def see(self, subject: str, sees: str, reason: str) -> None:
        """Say what events there are about a subject, if that is new: `sees` is all, part or none."""
        if self._scopes.get(subject) != (sees, reason):
            self._scopes[subject] = (sees, reason)
            self._tell_scope(subject)

    # The way out

    def tick(self) -> None:
        """Make events of what was summed up long enough."""
        now = self._timers.now()
        if now >= self._scope_due:
            self._scope_due = now + SCOPE_EVERY_S
            for subject in self._scopes:
                self._tell_scope(subject)
        if now >= self._fetches_due:
            self._fetches_due = now + TOLD_EVERY_S
            self._tell_fetches()
        if now >= self._load_due:
            self._load_due = now + self._load_interval_s
            self.tell_load()

    def tell_load(self) -> None:
        """Make events of the load since the last time."""
        for call in (*self.on_interval, *self.on_sums):
            call()
        for kind, place, values in self.loads.take(self._timers.now()):
            self.offer(kind, place, None, None, values)

    def end(self) -> None:
        """Make events of all that was summed up: nothing follows."""
        self._tell_fetches()
        self.tell_load()

    def _tell_fetches(self) -> None:
        for call in self.on_sums:
            call()
        self.fetches.tell()

    def _fetched(self, place: Place, group: str | None, values: tuple[Any, ...]) -> None:
        self.offer("fetch", place, group, None, values)

    def _tell_scope(self, subject: str) -> None:
        self.offer("scope", NOWHERE, None, None, (subject, *self._scopes[subject]))
