"""Callbacks of the application for rebalances."""

from __future__ import annotations

from kafka_share_proxy.consumer.partitions import Partitions


class RebalanceListener:
    """Base class for listeners; override the methods you need
    (org.apache.kafka.clients.consumer.ConsumerRebalanceListener).

    Callbacks run within `poll`, in its task, and may be slow: heartbeats continue. They may use the consumer, except
    for `poll`. Their exceptions are raised by `poll`, and the rebalance continues. A callback that is cancelled runs
    again in the next poll (client/README.md rule 14).
    """

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        """Called when partitions were added. Records of them follow."""

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        """Called before partitions are given up. Their offsets can be committed until it returns."""

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        """Called when other members own these partitions, or may own them. Their offsets can no longer be committed."""
