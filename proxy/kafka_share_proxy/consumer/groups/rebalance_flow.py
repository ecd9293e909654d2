"""Owned, revoked and assigned partitions of one member: the part of a rebalance that both group protocols share.

Order: `begin_revocation`, `release`, `check_revoked`, `give_up_released`, `begin_assignment`, `acknowledge_assigned`.
If another assignment arrives in the meantime, the sets are computed again, and delayed partitions keep their state and
their deadline (consumer/README.md rules 7, 10, 14, 15).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from kafka_share_proxy.consumer.events import (
    AssignPartitions,
    BackgroundEvent,
    PartitionsLost,
    RevokeCancelled,
    RevokePartitions,
)
from kafka_share_proxy.consumer.groups.deadlines import DelayLimits, RebalanceProtocol, revoke_deadline
from kafka_share_proxy.consumer.groups.states import RebalanceState, StateTrace
from kafka_share_proxy.consumer.partitions import NOTHING, Partitions
from kafka_share_proxy.wire.values import TopicPartition

State = RebalanceState


class RebalanceFlow:
    """Progress of one member in a rebalance, with the deadlines for delays."""

    def __init__(self, trace: StateTrace[RebalanceState], limits: DelayLimits) -> None:
        self.trace = trace
        self._limits = limits
        self.owned: Partitions = NOTHING
        """Partitions of this member, including those that are to be given up."""
        self.released: Partitions = NOTHING
        """Partitions that the application has released. The member owns them until they are given up together."""
        self.target: Partitions = NOTHING
        """Assignment of the coordinator or leader."""
        self.rebalance_id = 0
        """Number of the current revocation or assignment, which the application's acknowledgements must repeat."""
        self._revoked_at: dict[TopicPartition, float] = {}
        """Time at which each revocation that is not released was requested; monotonic seconds."""
        self._protocol = RebalanceProtocol.EAGER

    @property
    def state(self) -> RebalanceState:
        return self.trace.state

    @property
    def revoking(self) -> Partitions:
        return frozenset(self._revoked_at)

    @property
    def deadline(self) -> float:
        if not self._revoked_at:
            return math.inf
        return revoke_deadline(self._protocol, min(self._revoked_at.values()), self._limits)

    def begin_revocation(
        self, partitions: Partitions, protocol: RebalanceProtocol, now: float, reason: str
    ) -> list[BackgroundEvent]:
        """Revoke exactly these partitions. Other revocations are cancelled."""
        self.rebalance_id += 1
        self._protocol = protocol
        regained = (self.revoking | self.released) - partitions
        self.released -= regained
        learned = {each: self._revoked_at.get(each, now) for each in partitions - self.released}
        self._revoked_at = learned
        if self.state is State.STABLE:
            self.trace.to(State.PREPARE_REVOCATION, now, reason)
            self.trace.to(State.REVOKING_PARTITION, now, f"{len(partitions)} partitions")
        events: list[BackgroundEvent] = []
        if regained:
            events.append(RevokeCancelled(rebalance_id=self.rebalance_id, partitions=regained))
        if learned:
            events.append(
                RevokePartitions(rebalance_id=self.rebalance_id, partitions=frozenset(learned), deadline=self.deadline)
            )
        return events

    def release(self, partitions: Collection[TopicPartition]) -> Partitions:
        """Note that the application has released partitions. Return those that were to be revoked."""
        released = self.revoking & frozenset(partitions)
        for each in released:
            del self._revoked_at[each]
        self.released |= released
        return released

    def expire(self, now: float) -> list[BackgroundEvent]:
        """Give up partitions as lost whose deadline has passed. Nothing of them is committed."""
        late = frozenset(
            each
            for each, revoked_at in self._revoked_at.items()
            if now >= revoke_deadline(self._protocol, revoked_at, self._limits)
        )
        if not late:
            return []
        self.release(late)
        self.owned -= late
        return [PartitionsLost(partitions=late, reason="not released before the deadline of the revoke")]

    def check_revoked(self, now: float) -> bool:
        """Advance to PARTITION_REVOKED once all partitions are released. Return True in that state."""
        if self.state is State.REVOKING_PARTITION and not self._revoked_at:
            self.trace.to(State.PARTITION_REVOKED, now, f"{len(self.released)} partitions released")
        return self.state is State.PARTITION_REVOKED

    def give_up_released(self) -> Partitions:
        """Remove the released partitions from the owned ones, and return them."""
        released, self.released = self.released, NOTHING
        self.owned -= released
        return released

    def begin_assignment(self, now: float, reason: str) -> list[BackgroundEvent]:
        """Make the target the owned partitions, and notify the application."""
        if self.state is not State.COMPLETING_REBALANCE:
            self.trace.to(State.COMPLETING_REBALANCE, now, reason)
        self.trace.to(State.ASSIGNING_PARTITIONS, now, f"{len(self.target)} partitions assigned")
        self.rebalance_id += 1
        added = self.target - self.owned
        self.owned = self.target
        return [AssignPartitions(rebalance_id=self.rebalance_id, assigned=self.target, added=added)]

    def acknowledge_assigned(self, rebalance_id: int, now: float) -> bool:
        """Advance to STABLE. Return False if the application acknowledged another rebalance."""
        if rebalance_id != self.rebalance_id or self.state is not State.ASSIGNING_PARTITIONS:
            return False
        self.trace.to(State.STABLE, now, "the application knows its partitions")
        return True

    def lose_everything(self, now: float, reason: str) -> list[BackgroundEvent]:
        lost = self.owned
        self.leave(now, reason)
        return [PartitionsLost(partitions=lost, reason=reason)] if lost else []

    def leave(self, now: float, reason: str) -> None:
        """Clear all state. The application knows that the member leaves."""
        self.owned = self.released = self.target = NOTHING
        self._revoked_at = {}
        self.rebalance_id += 1
        if self.state is not State.UNJOINED:
            self.trace.to(State.UNJOINED, now, reason)
