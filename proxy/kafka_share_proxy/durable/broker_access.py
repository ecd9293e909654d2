"""Access to brokers under the proxy's own identity, for the topics of states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.loop.interfaces import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """Access to brokers under the proxy's own identity."""

    client: Callable[[], ClusterClient]
    """Create another client, for one task."""
    settings: ClusterClientSettings
    own: ClusterQueries | None
    """None: the brokers' expiration times of producers are not requested."""
    notes: Notes
