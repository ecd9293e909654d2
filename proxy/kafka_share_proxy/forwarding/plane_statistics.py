"""Figures of the data plane, for metrics and the status page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneStatistics:
    """Figures of one moment, and totals since the start."""

    connections: int
    connections_total: int
    connections_moved_total: int
    """Connections that another worker continues."""
    tls_handshakes: int
    """Unfinished TLS handshakes of clients."""
    tls_handshakes_refused_total: int
    tls_bytes: int
    """Estimated memory of TLS connections to clients."""
    upstream_connections: int
    in_flight: int
    muted: int
    """Connections with a local request."""
    local_answers_total: int
    local_answer_bytes: int
    """Bytes that the kernel has not accepted yet or that are reserved."""
    local_answers_without_room: int
    gathered_bytes: int
    """Counted in `limits.gathered_total_bytes`."""
    gathered_without_room: int
    """Connections ended for lack of memory."""
    bytes_up: int
    bytes_down: int
    unsent_bytes: int
    ended: Mapping[str, int]
