"""Settings of a cluster in one process, with the defaults of Kafka 4.3 where not said otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Settings that the nodes share."""

    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replication: int = 1
    group_initial_rebalance_delay_ms: int = 0
    """Kafka's default is 3000. 0, because a test would wait for it."""
    group_session_timeout_min_ms: int = 6_000
    group_session_timeout_max_ms: int = 1_800_000
    group_size_max: int = 1_000
    """Maximum number of members of a group. Our decision, Kafka's default has no limit."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """Minimum time between two target assignments of a group."""
    offset_metadata_max_bytes: int = 4_096
    transaction_timeout_max_ms: int = 900_000
    fetch_max_bytes: int = 57_671_680
    fetch_session_slots: int = 1_000
    """Maximum number of fetch sessions at one node."""
