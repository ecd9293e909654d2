"""Leader of a classic group: reads the subscriptions of all members and assigns partitions (ConsumerCoordinator)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_share_proxy.consumer.assignors.interface import Assignor
from kafka_share_proxy.consumer.assignors.racks import Racks, racks_of_members
from kafka_share_proxy.consumer.events import FatalGroupError
from kafka_share_proxy.consumer.groups.group_protocol import (
    GroupAssignment,
    GroupSubscription,
    read_subscription,
    write_assignment,
)
from kafka_share_proxy.consumer.metadata_requests import MetadataRequests


class GroupLeader:
    """The leader's work from the JoinGroup response to the SyncGroup request."""

    def __init__(self, assignors: Sequence[Assignor], metadata: MetadataRequests) -> None:
        self._assignors = {each.name: each for each in assignors}
        self._metadata = metadata
        self._members: dict[str, GroupSubscription] = {}
        self._assignor: Assignor | None = None
        self._counts: dict[str, int] | None = None
        """Partition counts of the last assignment. None if this member has assigned nothing."""
        self._racks: Racks = {}
        """Empty if no member has a rack."""

    def become_leader(self, response: Any) -> None:
        """Become leader, from the JoinGroup response.

        Raises MalformedMember if a member has sent a malformed subscription, and FatalGroupError if the coordinator has
        chosen an assignor that this member did not offer.
        """
        self.step_down()
        if response.protocol_name not in self._assignors:
            raise FatalGroupError(f"the coordinator has chosen the assignor {response.protocol_name!r}, not offered")
        if not response.skip_assignment:
            self._assignor = self._assignors[response.protocol_name]
            self._members = {
                each.member_id: read_subscription(each.member_id, bytes(each.metadata), each.group_instance_id)
                for each in response.members
            }

    def step_down(self) -> None:
        """Forget the members: this member is not the leader, or not yet."""
        self._members, self._assignor, self._counts = {}, None, None

    def assign(self) -> list[tuple[str, bytes]] | None:
        """Return (member id, assignment), or None while topics are unknown.

        The list is empty for a follower and for a static leader that has rejoined (skip_assignment).
        """
        if self._assignor is None:
            return []
        counts = self._metadata.partition_counts(self._all_topics())
        if counts is None:
            return None
        self._counts, self._racks = counts, self._racks_of_replicas()
        weights = self._metadata.slot_weights(counts)
        assigned = self._assignor.assign(counts, self._members, self._racks, weights)
        return [
            (member_id, write_assignment(GroupAssignment(partitions=tuple(partitions))))
            for member_id, partitions in assigned.items()
        ]

    def needs_new_assignment(self) -> bool:
        """Return True if topics or racks have changed since the assignment."""
        if self._counts is None:
            return False
        counts = self._metadata.partition_counts(self._all_topics())
        return counts is not None and (counts, self._racks_of_replicas()) != (self._counts, self._racks)

    def _racks_of_replicas(self) -> Racks:
        return self._metadata.replica_racks(self._all_topics()) if racks_of_members(self._members) else {}

    def _all_topics(self) -> list[str]:
        return sorted({topic for each in self._members.values() for topic in each.topics})
