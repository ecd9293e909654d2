"""The proxy's own limits on what clients make it hold and wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_share_proxy.wire.values import MIB


@dataclass(slots=True, kw_only=True)
class Limits:
    """The proxy's own limits. All are settings (`limits.*`). One instance per process, which a reload changes."""

    frame_bytes: int = 100 * MIB
    """Largest frame, in bytes, accepted from either side (Kafka: socket.request.max.bytes)."""
    collected_bytes: int = 64 * MIB
    """Largest response, in bytes, that is buffered whole in order to rewrite it."""
    inspected_request_bytes: int = 4 * MIB
    """Largest request, in bytes, that is buffered whole in order to inspect it."""
    unauthenticated_request_bytes: int = 512 * 1024
    """Largest request, in bytes, that is buffered before the broker has sent a response on the connection.

    Kafka: sasl.server.max.receive.size.
    """
    gathered_total_bytes: int = 256 * MIB
    """Bytes of all buffered or kept requests and responses, and of locally served requests, counted as decoded."""
    gathering_s: float = 30.0
    """Seconds that a client may take to send a buffered request before its connection is closed."""
    served_request_bytes: int = 2 * MIB
    """Largest request, in bytes, that is served locally."""
    served_request_elements: int = 25_000
    """Maximum number of elements in all arrays of a locally served request (groups, resources, partitions, batches,
    ...).
    """
    local_answer_bytes: int = 4 * MIB
    """Bytes of records in one local response. At least one record batch is sent even if it is larger."""
    local_answers_total_bytes: int = 256 * MIB
    """Bytes of all local responses, from their first records until the kernel has accepted them."""
    stalled_client_s: float = 30.0
    """Seconds without reading a byte of a local response after which a client's connection is closed."""
    idle_client_s: float = 600.0
    """Seconds of silence after which a client's connection is closed together with its upstream connection."""
    connection_age_s: float | None = None
    """Seconds after which a client's connection is closed once nothing is in flight, spread by 10 %. Unset: never."""
    dial_timeout_s: float = 10.0
    """Seconds for one attempt to connect to one upstream address, TLS included."""
    connections: int = 10_000
    """Maximum number of simultaneous client connections. A further connection is closed immediately and logged."""
    connections_per_address: int | None = None
    """Maximum number of these connections per client address. Unset: no such limit."""
    tls_handshakes: int = 2_000
    """Maximum number of unfinished TLS handshakes of clients, at most half of `connections`. Each counts as a
    connection.
    """
    tls_handshakes_per_address: int = 1_000
    """Maximum number of unfinished TLS handshakes per client address, at most half of the limit for all."""
    tls_handshake_s: float = 10.0
    """Seconds that a client may keep the proxy waiting during its TLS handshake before the connection is closed."""
    proxy_header_s: float = 5.0
    """Seconds that a load balancer may take to send its PROXY protocol header."""
    tls_total_bytes: int = 1024 * MIB
    """Estimated bytes of memory for all TLS connections of clients. At this limit, new ones are refused."""
    in_flight_requests: int = 10_000
    """Requests of one connection without a response. At this limit, the proxy stops reading from the client."""
    share_cache_bytes: int = 64 * MIB
    """Bytes of recently read record batches cached for other members of share groups."""
    metrics_groups: int = 20
    """Number of share groups that /metrics shows by name. All others are added up as one."""

    def take(self, other: Limits, names: Iterable[str]) -> None:
        """Set the limits of these names to those of `other`."""
        for name in names:
            setattr(self, name, getattr(other, name))
