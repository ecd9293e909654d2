"""A platform for features, with as little as a test needs."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot
from kafka_share_proxy.durable.state_home import StateHome
from kafka_share_proxy.durable.state_host import BrokerAccess
from kafka_share_proxy.feature.feature import Platform
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.workers import InlineWorkers

NO_CLUSTER = ClusterSnapshot(brokers={}, metadata=(), versions={}, silent={})


def platform(services: Services, **parts: Any) -> Platform:
    """Return a platform whose features can be stored, without connections."""
    platform_parts: dict[str, Any] = {
        "services": services,
        "settings": ClusterClientSettings(),
        "client": partial(SimpleNamespace, settings=ClusterClientSettings()),
        "workers": InlineWorkers(),
        "cluster": NO_CLUSTER,
        "address": "p:1",
    }
    platform_parts |= parts
    return Platform(**{"home": _home(**platform_parts)} | platform_parts)


def _home(services: Services, settings: ClusterClientSettings, client: Any, address: str, **_: Any) -> StateHome:
    owner: Any = SimpleNamespace(lease_s=6.0, is_valid=lambda: True)
    access = BrokerAccess(client=client, settings=settings, own=services.own, notes=services.notes)
    reactor: Any = SimpleNamespace()
    return StateHome(owner, access, reactor, address)
