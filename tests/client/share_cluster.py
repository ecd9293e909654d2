"""The scripted share group of tests/consumer with frames and memory streams, for share consumers with their tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafka_share_proxy.client.share_opening import open_share_consumer

from tests.client.cluster import ScriptedCluster, cluster
from tests.consumer.share_world import ShareKafka


class ShareCluster:
    """Two brokers."""

    def __init__(self, brokers: ScriptedCluster, kafka: ShareKafka) -> None:
        self.brokers, self.kafka = brokers, kafka

    def consumer(self, **options: Any) -> Any:
        """See open_share_consumer; in the explicit mode."""
        chosen = {"group": "g", "topics": ["a"], "acknowledgement_mode": "explicit", **options}
        return open_share_consumer("kafka:9091,kafka:9092", connect=self.brokers.net, client_id="a", **chosen)

    def cut(self) -> None:
        """End all connections, and with them the sessions, as brokers do."""
        for node in self.brokers.nodes.values():
            node.cut()
        for node_id, member in list(self.kafka.share.sessions):
            self.kafka.share.end_session(node_id, member)


@asynccontextmanager
async def share_cluster(kafka: ShareKafka) -> AsyncIterator[ShareCluster]:
    async with cluster(kafka) as brokers:
        yield ShareCluster(brokers, kafka)
