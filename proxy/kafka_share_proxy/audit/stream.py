"""Entry point of audit events: a bounded log, and the sums that later become events.

`app.observing.audit_shipping` calls `tick` several times a second, takes lines out of the log and writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_share_proxy.audit.event_log import event_log
from kafka_share_proxy.audit.events import NOWHERE, Place
from kafka_share_proxy.audit.fetches import REPORT_EVERY_S, Fetches
from kafka_share_proxy.audit.loads import Loads
from kafka_share_proxy.audit.sampling import KeySampling
from kafka_share_proxy.loop.interfaces import Timers, Workers
from kafka_share_proxy.wire.key_text import SHOWN_BYTES

SCOPE_EVERY_S = 3600.0
"""Seconds after which `scope` events are repeated, so that each daily file has them."""


class Audit:
    """Audit events of one process: written, aggregated and sampled."""

    def __init__(
        self,
        timers: Timers,
        queue_events: int,
        looks_per_s: float = 0.0,
        load_interval_s: float = 60.0,
        key_bytes: int = SHOWN_BYTES,
        draw: Callable[[], float] | None = None,
        workers: Workers | None = None,
    ) -> None:
        """
        Args:
            timers: clock of the loop.
            queue_events: maximum number of events that wait to be written.
            looks_per_s: budget of key samples (see KeySampling); 0 for none.
            load_interval_s: interval of `load` events in seconds.
            key_bytes: maximum number of bytes of a hot key that are shown; 0 for only its hash.
            draw: uniform random numbers of [0, 1), for samples.
            workers: threads that open compressed batches (see KeySampling).
        """
        self._timers = timers
        self._load_interval_s = load_interval_s
        self.log = event_log(queue_events, timers.wall_ms)
        self.offer = self.log.offer
        """See EventLog.offer. An attribute and not a method, because it is called often."""
        self.now, self.wall_ms = timers.now, timers.wall_ms
        """Seconds of the loop, and milliseconds since 1970."""
        now = timers.now()
        self.loads = Loads(now, key_bytes, draw)
        """Load by partition."""
        self.keys = KeySampling(timers, looks_per_s, self.loads.add_sample, draw, workers)
        """Called where records are read, with their bytes."""
        self.fetches = Fetches(self._fetched)
        self.on_sums: list[Callable[[], object]] = []
        """Callbacks of rooms that add their sums before events of loads or fetches are made."""
        self.on_interval: list[Callable[[], object]] = []
        """Callbacks before events of loads are made."""
        self._scopes: dict[str, tuple[str, str]] = {}
        self._load_due, self._fetches_due = now + load_interval_s, now + REPORT_EVERY_S
        self._scope_due = now + SCOPE_EVERY_S

    # Reports

    def report_coverage(self, subject: str, sees: str, reason: str) -> None:
        """Report which events of a subject are recorded, if that has changed. `sees`: all, part or none."""
        if self._scopes.get(subject) != (sees, reason):
            self._scopes[subject] = (sees, reason)
            self._report_scope(subject)

    # Events of sums

    def tick(self) -> None:
        """Make events of the sums that are due."""
        now = self._timers.now()
        if now >= self._scope_due:
            self._scope_due = now + SCOPE_EVERY_S
            for subject in self._scopes:
                self._report_scope(subject)
        if now >= self._fetches_due:
            self._fetches_due = now + REPORT_EVERY_S
            self._report_fetches()
        if now >= self._load_due:
            self._load_due = now + self._load_interval_s
            self.report_load()

    def report_load(self) -> None:
        """Make events of the load since the last ones."""
        for call in (*self.on_interval, *self.on_sums):
            call()
        for kind, place, values in self.loads.take(self._timers.now()):
            self.offer(kind, place, None, None, values)

    def end(self) -> None:
        """Make events of all sums, before the process ends."""
        self._report_fetches()
        self.report_load()

    def _report_fetches(self) -> None:
        for call in self.on_sums:
            call()
        self.fetches.report()

    def _fetched(self, place: Place, group: str | None, values: tuple[Any, ...]) -> None:
        self.offer("fetch", place, group, None, values)

    def _report_scope(self, subject: str) -> None:
        self.offer("scope", NOWHERE, None, None, (subject, *self._scopes[subject]))
