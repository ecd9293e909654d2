"""States of the coordinator and of a rebalance: all transitions as data, each one handed to an observer.

Theory of operation. Who drives a state asks for the next one with `to`. What the table does not allow raises, and
changes nothing: that is an error of ours (consumer/README.md rules 6-9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from proxy.wire.errors import LocalProtocolError


class CoordinatorState(Enum):
    """Whether the group's coordinator is known."""

    DOWN = "down"
    INITIALIZED = "initialized"
    """Running; nothing has needed a coordinator so far."""
    COORDINATOR_DISCOVERY = "coordinator_discovery"
    STABLE = "stable"


class RebalanceState(Enum):
    """Where the member stands (AbstractCoordinator.MemberState, and four more)."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing_rebalance"
    """JoinGroup is due or under way."""
    COMPLETING_REBALANCE = "completing_rebalance"
    """SyncGroup is due or under way; or its answer is taken apart."""
    ASSIGNING_PARTITIONS = "assigning_partitions"
    """The application does not know yet what it has been given."""
    STABLE = "stable"
    PREPARE_REVOCATION = "prepare_revocation"
    """What is to be revoked is paused."""
    REVOKING_PARTITION = "revoking_partition"
    """The application has not let go of it yet."""
    PARTITION_REVOKED = "partition_revoked"
    """Its positions are committed, and it is given up."""


def _coordinator_table() -> Mapping[CoordinatorState, frozenset[CoordinatorState]]:
    state = CoordinatorState
    return {
        state.DOWN: frozenset({state.INITIALIZED}),
        state.INITIALIZED: frozenset({state.COORDINATOR_DISCOVERY, state.DOWN}),
        state.COORDINATOR_DISCOVERY: frozenset({state.STABLE, state.DOWN}),
        state.STABLE: frozenset({state.COORDINATOR_DISCOVERY, state.DOWN}),
    }


def _rebalance_table() -> Mapping[RebalanceState, frozenset[RebalanceState]]:
    state = RebalanceState
    return {
        state.UNJOINED: frozenset({state.PREPARING_REBALANCE}),
        state.PREPARING_REBALANCE: frozenset({state.COMPLETING_REBALANCE, state.UNJOINED}),
        state.COMPLETING_REBALANCE: frozenset({state.ASSIGNING_PARTITIONS, state.PREPARING_REBALANCE, state.UNJOINED}),
        state.ASSIGNING_PARTITIONS: frozenset({state.STABLE, state.UNJOINED}),
        state.STABLE: frozenset({state.PREPARE_REVOCATION, state.COMPLETING_REBALANCE, state.UNJOINED}),
        state.PREPARE_REVOCATION: frozenset({state.REVOKING_PARTITION, state.UNJOINED}),
        state.REVOKING_PARTITION: frozenset({state.PARTITION_REVOKED, state.UNJOINED}),
        state.PARTITION_REVOKED: frozenset({state.PREPARING_REBALANCE, state.COMPLETING_REBALANCE, state.UNJOINED}),
    }


COORDINATOR_TRANSITIONS = _coordinator_table()
"""What may follow what; looking for the coordinator never leads back to `initialized`."""
REBALANCE_TRANSITIONS = _rebalance_table()
"""What may follow what; a member that has lost everything, or leaves, is UNJOINED from anywhere."""

TRACE_MAX = 1024
"""Transitions that a trace keeps; the oldest are forgotten."""

State = TypeVar("State", bound=Enum)


class StateChange(NamedTuple, Generic[State]):
    """A change from one state to another."""

    before: State
    after: State
    now: float
    """When, in seconds of the monotonic clock."""
    reason: str


class StateTrace(Generic[State]):
    """A state, how it came about, and who wants to know."""

    def __init__(
        self,
        first: State,
        transitions: Mapping[State, frozenset[State]],
        observer: Callable[[StateChange[State]], None] | None = None,
    ) -> None:
        self.state = first
        self.first = first
        self.changes: list[StateChange[State]] = []
        """The last TRACE_MAX transitions, oldest first."""
        self._transitions = transitions
        self._observer = observer

    def to(self, after: State, now: float, reason: str) -> None:
        """Go on. The observer hears of it when the state has changed.

        Raises:
            LocalProtocolError: the table has no such transition; nothing has changed.
        """
        before = self.state
        if after not in self._transitions[before]:
            raise LocalProtocolError(f"{before.value} is not followed by {after.value} ({reason})")
        change = StateChange(before, after, now, reason)
        self.state = after
        self.changes.append(change)
        del self.changes[:-TRACE_MAX]
        if self._observer is not None:
            self._observer(change)

    def chain(self) -> list[State]:
        """The states in the order in which they were reached, the first one included."""
        begin = self.changes[0].before if self.changes else self.first
        return [begin, *[change.after for change in self.changes]]


def coordinator_trace(
    observer: Callable[[StateChange[CoordinatorState]], None] | None = None,
) -> StateTrace[CoordinatorState]:
    """Of a consumer that does not run yet."""
    return StateTrace(CoordinatorState.DOWN, COORDINATOR_TRANSITIONS, observer)


def rebalance_trace(
    observer: Callable[[StateChange[RebalanceState]], None] | None = None,
) -> StateTrace[RebalanceState]:
    """Of a consumer that belongs to no group yet."""
    return StateTrace(RebalanceState.UNJOINED, REBALANCE_TRANSITIONS, observer)
