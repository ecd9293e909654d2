"""Access to brokers under the proxy's own identity, for the topics of states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_share_proxy.brokers.interfaces import OwnQueries
from kafka_share_proxy.brokers.own_client import OwnClient
from kafka_share_proxy.brokers.own_connection import OwnSettings
from kafka_share_proxy.loop.interfaces import Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """Access to brokers under the proxy's own identity."""

    client: Callable[[], OwnClient]
    """Create another client, for one task."""
    settings: OwnSettings
    own: OwnQueries | None
    """None: the brokers' expiration times of producers are not requested."""
    notes: Notes
