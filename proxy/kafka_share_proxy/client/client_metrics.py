"""Metrics of one consumer by name, since it was opened (client/README.md rule 39)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from kafka_share_proxy.client.notes import COMMITTED, POLLED, REBALANCE_STATE, ConsumerNote, Observe
from kafka_share_proxy.client.share_notes import RECORDS_ACKNOWLEDGED
from kafka_share_proxy.consumer.requests import Outcome, RequestFailure, UnsentRequest

PREFIX = "org.apache.kafka.consumer."
"""KIP-714."""
SENT_MAX = 10_000
"""Maximum number of requests in flight whose latency is measured."""


@dataclass(slots=True)
class Latency:
    """Sum and maximum of measured durations, in seconds."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def values(self, name: str) -> dict[str, float]:
        """Return average and maximum by metric name, in milliseconds (KIP-714). Empty without a measurement."""
        if not self.count:
            return {}
        return {f"{name}.avg": 1000 * self.total_s / self.count, f"{name}.max": 1000 * self.longest_s}


@dataclass(slots=True)
class ClientMetrics:
    """Counts and latencies of one consumer."""

    requests: Latency = field(default_factory=Latency)
    fetches: Latency = field(default_factory=Latency)
    commits: Latency = field(default_factory=Latency)
    rebalances: Latency = field(default_factory=Latency)
    records: int = 0
    acknowledged: int = 0
    refused: int = 0
    connections: int = 0
    _sent_at: dict[UnsentRequest, float] = field(default_factory=dict)
    _polling_s: float = 0.0
    _first_poll_at: float | None = None
    _rebalancing_since: float | None = None

    def observed_by(self, observe: Observe) -> Observe:
        """Return an observer that counts notes here and passes them on to `observe`."""

        def count_and_observe(note: ConsumerNote) -> None:
            self.on_note(note)
            observe(note)

        return count_and_observe

    def on_note(self, note: ConsumerNote) -> None:
        facts, now = note.facts, trio.current_time()
        if note.event == POLLED:
            self.records += facts["main"] + facts["child"]
            self._polling_s += facts["took_s"]
            self._first_poll_at = now - facts["took_s"] if self._first_poll_at is None else self._first_poll_at
        elif note.event == COMMITTED:
            self.commits.add(facts["took_s"])
        elif note.event == REBALANCE_STATE and facts["after"] == "preparing_rebalance":
            self._rebalancing_since = now if self._rebalancing_since is None else self._rebalancing_since
        elif note.event == REBALANCE_STATE and facts["after"] in ("stable", "unjoined"):
            if self._rebalancing_since is not None and facts["after"] == "stable":
                self.rebalances.add(now - self._rebalancing_since)
            self._rebalancing_since = None
        elif note.event == RECORDS_ACKNOWLEDGED:
            self.acknowledged += facts["records"]
            self.refused += facts["records"] if facts["error"] is not None else 0

    def on_sent(self, request: UnsentRequest) -> None:
        if len(self._sent_at) < SENT_MAX:
            self._sent_at[request] = trio.current_time()

    def on_outcome(self, request: UnsentRequest, outcome: Outcome) -> None:
        sent_at = self._sent_at.pop(request, None)
        if sent_at is not None and not isinstance(outcome, RequestFailure):
            took_s = trio.current_time() - sent_at
            self.requests.add(took_s)
            if request.api in ("Fetch", "ShareFetch"):
                self.fetches.add(took_s)

    def values(self, gauges: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics that were measured, by name."""
        by_name: dict[str, float] = {
            "connection.creation.total": self.connections,
            **self.requests.values("node.request.latency"),
            **self.fetches.values("fetch.manager.fetch.latency"),
            "fetch.manager.fetch.total": self.fetches.count,
            **gauges,
        }
        if self._first_poll_at is not None:
            elapsed_s = max(trio.current_time() - self._first_poll_at, self._polling_s)
            by_name |= {
                "fetch.manager.records.consumed.total": self.records,
                "poll.idle.ratio.avg": self._polling_s / elapsed_s if elapsed_s else 0.0,
                "coordinator.commit.total": self.commits.count,
                **self.commits.values("coordinator.commit.latency"),
                "coordinator.rebalance.total": self.rebalances.count,
                "coordinator.rebalance.latency.total": 1000 * self.rebalances.total_s,
                **self.rebalances.values("coordinator.rebalance.latency"),
            }
        if self.acknowledged:
            by_name["share.fetch.manager.acknowledgements.send.total"] = self.acknowledged
            by_name["share.fetch.manager.acknowledgements.error.total"] = self.refused
        return {PREFIX + name: value for name, value in sorted(by_name.items())}
