"""Port between `check` and the features: each queries the cluster for itself and reports what it found."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kafka_share_proxy.brokers.cluster_client import ClusterClient
from kafka_share_proxy.brokers.cluster_watch import ClusterSnapshot


class CheckReport(NamedTuple):
    """Sentences of `check` about one feature."""

    line: str
    """How the feature is served, in one sentence."""
    obstacles: tuple[str, ...] = ()
    """Reasons why the proxy would not work."""
    risks: tuple[str, ...] = ()
    """Settings of the cluster by which the proxy may lose state later, or cannot do a part of its work."""
    remarks: tuple[str, ...] = ()
    """Limitations and other information."""


class FeatureCheck(Protocol):
    """Part of `check` about one feature, with the settings that are checked."""

    @property
    def name(self) -> str:
        """Name of the feature for people, in the plural."""

    async def query(self, own: ClusterClient, cluster: ClusterSnapshot) -> Any:
        """Query the cluster, without changes. Raises ProxyError without a response of any server."""

    def report(self, findings: Any, cluster: ClusterSnapshot) -> CheckReport:
        """Return the sentences. `findings` is the result of `query`, None if there was no identity to query with."""
