"""Calls about the cluster, common to consumers and share consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_share_proxy.client.network_task import ListTopics, NetworkLoop
from kafka_share_proxy.consumer.topic_listing import PartitionInfo, Topics


class ClusterCalls:
    """Calls that need no group and no subscription."""

    def __init__(self, network: NetworkLoop[Any]) -> None:
        self._cluster = network

    def metrics(self) -> Mapping[str, float]:
        """Return metrics since the consumer was opened, with the names of KIP-714. Latencies are in milliseconds."""
        return self._cluster.metrics.values(self._cluster.core.gauges())

    async def list_topics(self) -> Topics:
        """Return the topics that this principal may see, with their partitions. Raises CallTimedOut."""
        listed: Topics = await self._cluster.call(lambda call_id: ListTopics(call_id, None))
        return listed

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic, ascending. The topic is not created.

        Raises BrokerRefused with the code UNKNOWN_TOPIC_OR_PARTITION if there is no such topic, or if this principal
        may not see it, and ValueError if the name is empty.
        """
        if not topic:
            raise ValueError("a topic has a name")
        listed: Topics = await self._cluster.call(lambda call_id: ListTopics(call_id, topic))
        return listed.get(topic, ())
