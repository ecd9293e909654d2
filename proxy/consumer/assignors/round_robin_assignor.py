"""Assignor `roundrobin`: all partitions in turn, to whoever subscribes to their topic (RoundRobinAssignor)."""

from __future__ import annotations

from itertools import cycle

from proxy.consumer.assignors.interface import Assigned, Members, PartitionCounts
from proxy.consumer.assignors.member_order import static_members_first
from proxy.consumer.assignors.racks import Racks
from proxy.consumer.deadlines import RebalanceProtocol
from proxy.consumer.partitions import Partitions
from proxy.wire.values import TopicPartition


class RoundRobinAssignor:
    """The turn goes on from topic to topic."""

    name = "roundrobin"
    protocol = RebalanceProtocol.EAGER

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Racks | None = None,  # noqa: ARG002 - as of all
    ) -> Assigned:
        """As the Java class does."""
        assigned: Assigned = {member_id: [] for member_id in members}
        turns = cycle(static_members_first(members, members))
        for topic in sorted({topic for each in members.values() for topic in each.topics}):
            for number in range(counts.get(topic, 0)):
                taker = next(member_id for member_id in turns if topic in members[member_id].topics)
                assigned[taker].append(TopicPartition(topic, number))
        return assigned

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:  # noqa: ARG002 - as of all
        """None: the turn depends on nothing before."""
        return None
