"""Dependencies that the states of one proxy share: its access to the brokers, and its loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka_share_proxy.brokers.channels import BrokerChannels
from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.interfaces import ClusterQueries
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.reactor import Reactor


class BrokerAccess(NamedTuple):
    """Access to brokers under the proxy's own identity."""

    client: Callable[[], ClusterClient]
    """Create another client, for one task."""
    settings: ClusterClientSettings
    own: ClusterQueries | None
    """None: the brokers' expiration times of producers are not requested."""
    notes: Notes


class StateHost(NamedTuple):
    """Dependencies that all states of this proxy share."""

    access: BrokerAccess
    reactor: Reactor
    name: str
    """Name of this proxy in the logs of states."""
    channels: BrokerChannels
    """Channels of the journals to the brokers."""
    lease_s: float
    on_lost: Callable[[int | None], None]
    """Called with a partition that another proxy has taken over. None: an internal error ends all."""
