"""Assignor `range`: of each topic every member gets one run of partitions (RangeAssignor, without racks)."""

from __future__ import annotations

from proxy.consumer.assignors.hash_order import string_order
from proxy.consumer.assignors.interface import Assigned, Members, PartitionCounts
from proxy.consumer.assignors.member_order import static_members_first
from proxy.consumer.deadlines import RebalanceProtocol
from proxy.consumer.partitions import Partitions
from proxy.wire.values import TopicPartition


class RangeAssignor:
    """Topics with as many partitions and the same subscribers are divided alike."""

    name = "range"
    protocol = RebalanceProtocol.EAGER

    def assign(self, counts: PartitionCounts, members: Members) -> Assigned:
        """As the Java class does where members name no rack."""
        assigned: Assigned = {member_id: [] for member_id in members}
        for topic in string_order(topic for topic in _topics(members) if counts.get(topic)):
            subscribers = [member_id for member_id, each in members.items() if topic in each.topics]
            _divide(topic, counts[topic], static_members_first(subscribers, members), assigned)
        return assigned

    def user_data(self, assigned: Partitions | None, generation: int) -> bytes | None:  # noqa: ARG002 - as of all
        """None: a range depends on nothing before."""
        return None


def _divide(topic: str, count: int, subscribers: list[str], assigned: Assigned) -> None:
    each, extra = divmod(count, len(subscribers))
    first = 0
    for position, member_id in enumerate(subscribers):
        end = first + each + (position < extra)
        assigned[member_id] += [TopicPartition(topic, number) for number in range(first, end)]
        first = end


def _topics(members: Members) -> list[str]:
    """In the order in which Java comes to know them: through a map of members, into a set."""
    return string_order(topic for member_id in string_order(members) for topic in members[member_id].topics)
