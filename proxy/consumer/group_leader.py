"""What the leader of a classic group does: read the subscriptions of all members, and assign (ConsumerCoordinator)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from proxy.consumer.assignors.interface import Assignor
from proxy.consumer.assignors.racks import Racks, racks_of_members
from proxy.consumer.events import FatalGroupError
from proxy.consumer.group_protocol import (
    GroupAssignment,
    GroupSubscription,
    read_subscription,
    write_assignment,
)


class GroupTopics(Protocol):
    """What the leader must know of topics, also of those that it does not subscribe to itself."""

    def partition_counts(self, topics: Iterable[str], now: float) -> dict[str, int] | None:
        """Topic -> partitions, of those that exist; None while some have not been asked about."""
        ...

    def replica_racks(self, topics: Iterable[str]) -> Racks:
        """Partition -> the racks of its replicas, of those that are known."""
        ...


class GroupLeader:
    """From JoinGroup's answer to SyncGroup's request, and the watch over the topics afterwards."""

    def __init__(self, assignors: Sequence[Assignor], topics: GroupTopics) -> None:
        self._assignors = {each.name: each for each in assignors}
        self._topics = topics
        self._members: dict[str, GroupSubscription] = {}
        self._assignor: Assignor | None = None
        self._counts: dict[str, int] | None = None
        """As they were when partitions were assigned; None: we do not lead, or do not assign."""
        self._racks: Racks = {}
        """The same; empty where no member names its rack."""

    def elected(self, response: Any) -> None:
        """Take JoinGroup's answer to the leader.

        Raises:
            MalformedMember: a member has sent what is no subscription; the text names it.
            FatalGroupError: the coordinator has chosen an assignor that we did not offer.
        """
        self.deposed()
        if response.protocol_name not in self._assignors:
            raise FatalGroupError(f"the coordinator has chosen the assignor {response.protocol_name!r}, not offered")
        if not response.skip_assignment:
            self._assignor = self._assignors[response.protocol_name]
            self._members = {
                each.member_id: read_subscription(each.member_id, bytes(each.metadata), each.group_instance_id)
                for each in response.members
            }

    def deposed(self) -> None:
        """Another one leads, or nobody."""
        self._members, self._assignor, self._counts = {}, None, None

    def assign(self, now: float) -> list[tuple[str, bytes]] | None:
        """(member id, assignment) of every member; nothing for a static leader that is back; None: topics unknown."""
        if self._assignor is None:
            return []
        counts = self._topics.partition_counts(self._all_topics(), now)
        if counts is None:
            return None
        self._counts, self._racks = counts, self._racks_of_replicas()
        assigned = self._assignor.assign(counts, self._members, self._racks)
        return [
            (member_id, write_assignment(GroupAssignment(partitions=tuple(partitions))))
            for member_id, partitions in assigned.items()
        ]

    def must_assign_anew(self, now: float) -> bool:
        """Whether a topic of the group has come, gone, grown, or moved to other racks since it was assigned."""
        if self._counts is None:
            return False
        counts = self._topics.partition_counts(self._all_topics(), now)
        return counts is not None and (counts, self._racks_of_replicas()) != (self._counts, self._racks)

    def _racks_of_replicas(self) -> Racks:
        return self._topics.replica_racks(self._all_topics()) if racks_of_members(self._members) else {}

    def _all_topics(self) -> list[str]:
        return sorted({topic for each in self._members.values() for topic in each.topics})
