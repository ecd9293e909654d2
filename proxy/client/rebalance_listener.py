"""Callbacks of the application: what it may be told of a rebalance while it polls."""

from __future__ import annotations

from proxy.consumer.partitions import Partitions


class RebalanceListener:
    """Subclass it and replace what you need (org.apache.kafka.clients.consumer.ConsumerRebalanceListener).

    Callbacks run within `poll`, in its task, and may take their time: heartbeats go on. They may use the consumer,
    except for `poll`. What they raise comes out of `poll`, and the rebalance goes on; one that is cancelled runs again
    in the next poll (client/README.md rule 14).
    """

    async def on_partitions_assigned(self, partitions: Partitions) -> None:
        """These were added; records of them follow."""

    async def on_partitions_revoked(self, partitions: Partitions) -> None:
        """These are given up when this returns; until then their offsets can be committed."""

    async def on_partitions_lost(self, partitions: Partitions) -> None:
        """Others have these, or may have them: nothing of them can be committed any more."""
