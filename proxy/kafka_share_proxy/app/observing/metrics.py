"""Metrics of the proxy, and the source of each. Names without the prefix `ksp_`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafka_share_proxy.app.observing.observe import LogNotes
from kafka_share_proxy.feature.metrics import Distribution, Metrics
from kafka_share_proxy.wire.definitions import registry

if TYPE_CHECKING:
    from kafka_share_proxy.app.observing.audit_shipping import AuditShipping
    from kafka_share_proxy.app.serving.composition import ServingParts
    from kafka_share_proxy.app.serving.garbage_collection import FreezingCollector
    from kafka_share_proxy.durable.state_home import StateHome
    from kafka_share_proxy.forwarding.plane_statistics import PlaneStatistics
    from kafka_share_proxy.forwarding.served_times import ServedTimes
    from kafka_share_proxy.loop.histogram import Histogram
    from kafka_share_proxy.loop.iterations import Iterations

PLANE_GAUGES = {
    "connections": "Open client connections.",
    "tls_handshakes": "Unfinished TLS handshakes of clients.",
    "tls_bytes": "Estimated memory of the clients' TLS connections (limits.tls_total_bytes).",
    "upstream_connections": "Open upstream connections, one for each client connection that sent a request.",
    "in_flight": "Requests that wait for a response.",
    "muted": "Connections with a request that the proxy is serving.",
    "local_answer_bytes": "Bytes of local responses that are reserved or not accepted by the kernel.",
    "gathered_bytes": "Bytes of requests and responses that are gathered, kept or processed.",
    "unsent_bytes": "Bytes that a peer has not accepted yet.",
}
PLANE_COUNTERS = {
    "connections_total": "Client connections since the start.",
    "connections_moved_total": "Client connections passed to the worker that owns their share group.",
    "tls_handshakes_refused_total": "TLS handshakes refused or ended because of limits.tls_*.",
    "local_answers_total": "Requests served by the proxy.",
    "local_answers_without_room": "Responses sent without records because the limit was reached.",
    "gathered_without_room": "Connections closed because limits.gathered_total_bytes was reached.",
    "bytes_up": "Bytes from clients to brokers.",
    "bytes_down": "Bytes to clients.",
}


def of_events(metrics: Metrics, notes: LogNotes) -> None:
    """Add the number of log events, including those below the log level."""
    metrics.add("events", "counter", "Log events, by name, also below the log level.", lambda: notes.counts, "event")


def of_iterations(metrics: Metrics, iterations: Iterations) -> None:
    """Add the durations of loop iterations, during which clients wait."""
    longest = "Longest loop iteration since the last scrape; 0 if none took 5 ms."
    over = "Loop iterations that took longer, by seconds; normally none over 0.02."
    metrics.add("turn_longest_seconds", "gauge", longest, iterations.take_longest)
    metrics.add("turns_over", "counter", over, iterations.over, "seconds")


def of_garbage(metrics: Metrics, collector: FreezingCollector) -> None:
    """Add the durations of garbage collections, during which clients wait."""
    longest = "Longest garbage collection since the last scrape."
    metrics.add("garbage_collection_longest_seconds", "gauge", longest, collector.take_longest)


def of_parts(metrics: Metrics, parts: ServingParts) -> None:
    """Add all metrics of clients, brokers and features."""
    _of_plane(metrics, parts)
    _of_served(metrics, parts.served_times)
    _of_brokers(metrics, parts)
    if parts.audit is not None:
        _of_audit(metrics, parts.audit)
    if parts.home is not None:
        _of_state(metrics, parts.home)
    _of_state_topics(metrics, parts)
    for feature in parts.features:
        feature.add_metrics(metrics)


def _of_plane(metrics: Metrics, parts: ServingParts) -> None:
    now: list[PlaneStatistics] = []

    def take_snapshot() -> None:
        now[:] = [parts.plane.statistics()]

    def reader(name: str) -> Callable[[], float]:
        return lambda: float(getattr(now[0], name))

    metrics.before(take_snapshot)
    for name, words in PLANE_GAUGES.items():
        metrics.add(name, "gauge", words, reader(name))
    for name, words in PLANE_COUNTERS.items():
        metrics.add(name.removesuffix("_total"), "counter", words, reader(name))
    metrics.add("ended", "counter", "Connections that ended, by reason.", lambda: now[0].ended, "reason")


def _of_brokers(metrics: Metrics, parts: ServingParts) -> None:
    book = parts.services.book
    metrics.add("brokers", "gauge", "Brokers with a listener here.", lambda: len(book.nodes))
    metrics.add(
        "brokers_left_out",
        "gauge",
        "Brokers that responses omit.",
        lambda: len(book.unbound),
    )


def _of_served(metrics: Metrics, times: ServedTimes) -> None:
    """Add the duration of requests, by API."""

    def served() -> Mapping[str, Histogram]:
        return {registry.API_KEYS[key]: histogram for key, histogram in times.by_api.items()}

    words = "From a complete request that is served here until its response, including waits for records."
    metrics.add("served_request_seconds", "histogram", words, served, "api")


def _of_audit(metrics: Metrics, shipping: AuditShipping) -> None:
    metrics.add("audit_events", "counter", "Audit events, lost ones included.", lambda: shipping.audit.log.seq)
    metrics.add("audit_events_lost", "counter", "Audit events that were lost, by where.", shipping.dropped, "where")


def _of_state(metrics: Metrics, home: StateHome) -> None:
    """Add metrics of state in topics, and of the other proxies that own parts of it."""
    metrics.add("state_partitions", "gauge", "Partitions of state owned here.", lambda: len(home.served))
    metrics.add("state_appends", "counter", "Appends to topics of state.", lambda: home.appends)
    links = home.links
    if links is not None:
        metrics.add("peers", "gauge", "Other proxies that are linked with this one.", lambda: len(links.linked))
        metrics.add("peer_requests", "gauge", "Requests that other proxies serve now.", lambda: links.requests_waiting)
        metrics.add("peer_clients", "gauge", "Clients of other proxies served here.", lambda: links.far_clients)


def _of_state_topics(metrics: Metrics, parts: ServingParts) -> None:
    """Add metrics of topic settings that put records in internal topics at risk."""
    guards = [] if parts.home is None else [hosted.guard for hosted in parts.home.states]
    guards += [guard for feature in parts.features for guard in feature.guards]
    if not guards:
        return
    unsafe = "1 while brokers delete confirmed records of an internal topic, by its settings."
    risks = "1 while a setting of an internal topic puts confirmed records or the service at risk, by setting."

    def at_risk() -> dict[tuple[str, ...], float | Distribution]:
        return {(guard.topic, risk): 1.0 for guard in guards for risk in guard.risks}

    metrics.add("state_topic_unsafe", "gauge", unsafe, lambda: {g.topic: bool(g.unsafe) * 1.0 for g in guards}, "topic")
    metrics.add("state_topic_risks", "gauge", risks, at_risk, "topic", "risk")
