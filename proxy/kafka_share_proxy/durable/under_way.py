"""Requests of a journal in flight, and giving up requests to a broker that was replaced meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from kafka_share_proxy.brokers.channel import Channel
from kafka_share_proxy.brokers.channels import BrokerChannels
from kafka_share_proxy.durable.producer_requests import Append, Identify, RequestType
from kafka_share_proxy.durable.state_producer import StateProducer
from kafka_share_proxy.wire.errors import ErrorCode

MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors after which another broker may be the leader or coordinator."""
REPLACED = "it does not respond, and another broker has replaced it"


class Produce(NamedTuple):
    """Appends that one request sends to their leader."""

    channel: Channel
    producers: dict[int, StateProducer]
    """Producers by partition, as in `batches`."""
    batches: dict[int, bytes]


class UnderWay:
    """Requests in flight, by broker or partition."""

    def __init__(self, purposes: Mapping[RequestType, str]) -> None:
        """`purposes`: name of the channel to a broker, by type of request."""
        self.appends: dict[int, Collection[int]] = {}
        """Partitions with a Produce in flight, by node id of their leader."""
        self.identifies: dict[int, int] = {}
        """Node id of the coordinator, by partition with an InitProducerId in flight."""
        self._purposes = purposes

    def stopped(self, partitions: Iterable[int]) -> None:
        """Forget identify requests. An append still keeps its leader busy."""
        for partition in partitions:
            self.identifies.pop(partition, None)

    def check(self, channels: BrokerChannels, leaders: Mapping[int, int], coordinators: dict[int, int]) -> bool:
        """Give up requests to replaced brokers. Return True if any broker is late."""
        late = [self._is_late(channels, *each, Append, leaders) for each in list(self.appends.items())]
        identifying: dict[int, set[int]] = {}
        for partition, node_id in self.identifies.items():
            identifying.setdefault(node_id, set()).add(partition)
        for node_id, partitions in identifying.items():
            late.append(self._is_late(channels, node_id, partitions, Identify, coordinators))
            if late[-1]:
                for partition in partitions:
                    forget(coordinators, partition, node_id)
        return any(late)

    def _is_late(
        self,
        channels: BrokerChannels,
        node_id: int,
        partitions: Collection[int],
        request_type: RequestType,
        where: Mapping[int, int],
    ) -> bool:
        purpose = self._purposes[request_type]
        if not channels.is_late(node_id, purpose):
            return False
        if any(where.get(partition, node_id) != node_id for partition in partitions):
            channels.give_up(node_id, purpose, REPLACED)
        return True


def forget(where: dict[int, int], partition: int, node_id: int) -> None:
    """Remove this entry. A newer one may be right and stays."""
    if where.get(partition) == node_id:
        del where[partition]
