"""What a member holds, gives up and is given: the part of a rebalance that both group protocols share.

Theory of operation. A membership tells what it has been assigned. What it holds and is not assigned any more is to be
revoked: `begin_revocation` pauses it and asks the application, `release` notes what the application let go of, and when
nothing is left `revoked` gives it up. Then `begin_assignment` tells the application what it has now, and `assigned`
ends the rebalance. A second answer may come in the meantime: then the sets are made anew, and what was delayed keeps
its place and its deadline (consumer/README.md rules 7, 10, 14, 15).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from proxy.consumer.deadlines import DelayLimits, RebalanceProtocol, revoke_deadline
from proxy.consumer.events import (
    AssignPartitions,
    BackgroundEvent,
    PartitionsLost,
    RevokeCancelled,
    RevokePartitions,
)
from proxy.consumer.partitions import NOTHING, Partitions
from proxy.consumer.states import RebalanceState, StateTrace
from proxy.wire.values import TopicPartition

State = RebalanceState


class RebalanceFlow:
    """How far one member is with a rebalance, and until when it may delay."""

    def __init__(self, trace: StateTrace[RebalanceState], limits: DelayLimits) -> None:
        self.trace = trace
        self._limits = limits
        self.owned: Partitions = NOTHING
        """What the member holds, also what it is to give up and has not."""
        self.released: Partitions = NOTHING
        """What the application has let go of in this rebalance; still owned until all of it is given up."""
        self.target: Partitions = NOTHING
        """What the member has been assigned last."""
        self.rebalance_id = 0
        """Of the last assignment or revocation; acknowledgements name it."""
        self._asked_at: dict[TopicPartition, float] = {}
        """What is to be revoked and not released -> when that was learned."""
        self._protocol = RebalanceProtocol.EAGER

    @property
    def state(self) -> RebalanceState:
        """Where the member stands."""
        return self.trace.state

    @property
    def revoking(self) -> Partitions:
        """What the application has not let go of."""
        return frozenset(self._asked_at)

    @property
    def deadline(self) -> float:
        """When the first of them is given up as lost."""
        if not self._asked_at:
            return math.inf
        return revoke_deadline(self._protocol, min(self._asked_at.values()), self._limits)

    def begin_revocation(
        self, partitions: Partitions, protocol: RebalanceProtocol, now: float, reason: str
    ) -> list[BackgroundEvent]:
        """These are to be revoked, and nothing else, whatever an earlier rebalance asked for."""
        self.rebalance_id += 1
        self._protocol = protocol
        regained = (self.revoking | self.released) - partitions
        self.released -= regained
        learned = {each: self._asked_at.get(each, now) for each in partitions - self.released}
        self._asked_at = learned
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
        """The application has let go. Returns: what of it was to be revoked; the rest is stale and means nothing."""
        released = self.revoking & frozenset(partitions)
        for each in released:
            del self._asked_at[each]
        self.released |= released
        return released

    def expire(self, now: float) -> list[BackgroundEvent]:
        """Give up as lost what the application has not let go of in time: from now on nothing of it is committed."""
        late = frozenset(
            each
            for each, asked in self._asked_at.items()
            if now >= revoke_deadline(self._protocol, asked, self._limits)
        )
        if not late:
            return []
        self.release(late)
        self.owned -= late
        return [PartitionsLost(partitions=late, reason="not released before the deadline of the revoke")]

    def revoked(self, now: float) -> bool:
        """Go on to PARTITION_REVOKED once nothing is left to wait for. Returns: whether that is so."""
        if self.state is State.REVOKING_PARTITION and not self._asked_at:
            self.trace.to(State.PARTITION_REVOKED, now, f"{len(self.released)} partitions released")
        return self.state is State.PARTITION_REVOKED

    def give_up_released(self) -> Partitions:
        """They are not this member's any more. Returns: which."""
        released, self.released = self.released, NOTHING
        self.owned -= released
        return released

    def begin_assignment(self, now: float, reason: str) -> list[BackgroundEvent]:
        """Tell the application of `target`; the state is COMPLETING_REBALANCE, or becomes it."""
        if self.state is not State.COMPLETING_REBALANCE:
            self.trace.to(State.COMPLETING_REBALANCE, now, reason)
        self.trace.to(State.ASSIGNING_PARTITIONS, now, f"{len(self.target)} partitions assigned")
        self.rebalance_id += 1
        added = self.target - self.owned
        self.owned = self.target
        return [AssignPartitions(rebalance_id=self.rebalance_id, assigned=self.target, added=added)]

    def assigned(self, rebalance_id: int, now: float) -> bool:
        """The application knows. Returns: whether it meant this rebalance."""
        if rebalance_id != self.rebalance_id or self.state is not State.ASSIGNING_PARTITIONS:
            return False
        self.trace.to(State.STABLE, now, "the application knows its partitions")
        return True

    def lose_everything(self, now: float, reason: str) -> list[BackgroundEvent]:
        """The member is out of the group."""
        lost = self.owned
        self.leave(now, reason)
        return [PartitionsLost(partitions=lost, reason=reason)] if lost else []

    def leave(self, now: float, reason: str) -> None:
        """Hold nothing any more; the application knows why."""
        self.owned = self.released = self.target = NOTHING
        self._asked_at = {}
        self.rebalance_id += 1
        if self.state is not State.UNJOINED:
            self.trace.to(State.UNJOINED, now, reason)
