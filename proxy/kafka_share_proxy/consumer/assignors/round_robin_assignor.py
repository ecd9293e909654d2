"""Assignor `roundrobin`: each partition goes to the next member that subscribes to its topic (RoundRobinAssignor)."""

from __future__ import annotations

from itertools import cycle

from kafka_share_proxy.consumer.assignors.interface import (
    Assigned,
    Members,
    PartitionCounts,
    SlotWeights,
    static_members_first,
)
from kafka_share_proxy.consumer.assignors.racks import Racks
from kafka_share_proxy.consumer.groups.deadlines import RebalanceProtocol
from kafka_share_proxy.consumer.partitions import Partitions
from kafka_share_proxy.wire.values import TopicPartition


class RoundRobinAssignor:
    """Assigns partitions in a cycle of members, which continues from one topic to the next."""

    name = "roundrobin"
    protocol = RebalanceProtocol.EAGER

    def assign(
        self,
        counts: PartitionCounts,
        members: Members,
        racks: Racks | None = None,  # noqa: ARG002 - interface
        weights: SlotWeights | None = None,  # noqa: ARG002 - interface
    ) -> Assigned:
        assigned: Assigned = {member_id: [] for member_id in members}
        rotation = cycle(static_members_first(members, members))
        for topic in sorted({topic for each in members.values() for topic in each.topics}):
            for number in range(counts.get(topic, 0)):
                taker = next(member_id for member_id in rotation if topic in members[member_id].topics)
                assigned[taker].append(TopicPartition(topic, number))
        return assigned

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:  # noqa: ARG002 - interface
        return None
