"""What a journal has asked brokers and they have not answered; who was replaced meanwhile is not waited for.

A broker that is lost without a word ends no connection. Once it is late with an answer, its place is looked up again
and again (`look`); when another one has it, the channel is closed, and what became of the request is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from proxy.brokers.channels import BrokerChannels
from proxy.durable.state_producer import Append, Identify
from proxy.wire.errors import ErrorCode

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
"""Somebody else may be the one to ask."""
REPLACED = "it does not answer, and another broker has its place"


class UnderWay:
    """Requests of one journal. `purposes`: of the channels that they go over."""

    def __init__(self, purposes: Mapping[type[Identify | Append], str]) -> None:
        self.appends: dict[int, Collection[int]] = {}
        """Leaders with a Produce on its way, and the partitions that it is for."""
        self.identifies: dict[int, int] = {}
        """Partitions with an InitProducerId on its way -> node id of who was asked."""
        self._purposes = purposes

    def stopped(self, partitions: Iterable[int]) -> None:
        """Nobody asks who writes to these any more; an append still keeps its leader busy."""
        for partition in partitions:
            self.identifies.pop(partition, None)

    def look(self, links: BrokerChannels, leaders: Mapping[int, int], coordinators: dict[int, int]) -> bool:
        """Give up whom the view shows as replaced; whether any is late. Coordinators who are late are looked for anew.

        `leaders`, `coordinators`: partition -> node id, as the view has it now.
        """
        late = [self._is_late(links, *each, Append, leaders) for each in list(self.appends.items())]
        asked: dict[int, set[int]] = {}
        for partition, node_id in self.identifies.items():
            asked.setdefault(node_id, set()).add(partition)
        for node_id, partitions in asked.items():
            late.append(self._is_late(links, node_id, partitions, Identify, coordinators))
            if late[-1]:
                for partition in partitions:
                    forget(coordinators, partition, node_id)
        return any(late)

    def _is_late(
        self,
        links: BrokerChannels,
        node_id: int,
        partitions: Collection[int],
        wanted: type[Identify | Append],
        where: Mapping[int, int],
    ) -> bool:
        purpose = self._purposes[wanted]
        if not links.is_late(node_id, purpose):
            return False
        if any(where.get(partition, node_id) != node_id for partition in partitions):
            links.give_up(node_id, purpose, REPLACED)
        return True


def forget(where: dict[int, int], partition: int, node_id: int) -> None:
    """It is not this broker; who was found meanwhile may be right."""
    if where.get(partition) == node_id:
        del where[partition]
