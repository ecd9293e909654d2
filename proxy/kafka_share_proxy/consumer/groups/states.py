"""States of the coordinator and of a rebalance, with their transitions as data and an observer for each transition.

Rules: consumer/README.md 6 to 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from kafka_share_proxy.wire.errors import LocalProtocolError


class CoordinatorState(Enum):
    """State of the lookup of the group's coordinator."""

    DOWN = "down"
    INITIALIZED = "initialized"
    """Running. Nothing has needed a coordinator so far."""
    COORDINATOR_DISCOVERY = "coordinator_discovery"
    STABLE = "stable"


class RebalanceState(Enum):
    """State of a member in a rebalance (AbstractCoordinator.MemberState, and four more)."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing_rebalance"
    """JoinGroup is due or in flight."""
    COMPLETING_REBALANCE = "completing_rebalance"
    """SyncGroup is due or in flight."""
    ASSIGNING_PARTITIONS = "assigning_partitions"
    """The application does not know the new assignment yet."""
    STABLE = "stable"
    PREPARE_REVOCATION = "prepare_revocation"
    """The partitions to be revoked are paused."""
    REVOKING_PARTITION = "revoking_partition"
    """The application has not released the partitions yet."""
    PARTITION_REVOKED = "partition_revoked"
    """The partitions are committed and given up."""


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
REBALANCE_TRANSITIONS = _rebalance_table()
"""A member that leaves or loses everything becomes UNJOINED."""

TRACE_MAX = 1024
"""Maximum number of past transitions kept. The oldest are dropped."""

State = TypeVar("State", bound=Enum)


class StateChange(NamedTuple, Generic[State]):
    """A change from one state to another."""

    before: State
    after: State
    now: float
    reason: str


class StateTrace(Generic[State]):
    """Current state and past transitions."""

    def __init__(
        self,
        first: State,
        transitions: Mapping[State, frozenset[State]],
        observer: Callable[[StateChange[State]], None] | None = None,
    ) -> None:
        self.state = first
        self.first = first
        self.changes: list[StateChange[State]] = []
        """Oldest first."""
        self._transitions = transitions
        self._observer = observer

    def to(self, after: State, now: float, reason: str) -> None:
        """Change the state. Raises LocalProtocolError if the table does not contain the transition."""
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
        """Return the states of the kept transitions, oldest first."""
        begin = self.changes[0].before if self.changes else self.first
        return [begin, *[change.after for change in self.changes]]


def coordinator_trace(
    observer: Callable[[StateChange[CoordinatorState]], None] | None = None,
) -> StateTrace[CoordinatorState]:
    return StateTrace(CoordinatorState.DOWN, COORDINATOR_TRANSITIONS, observer)


def rebalance_trace(
    observer: Callable[[StateChange[RebalanceState]], None] | None = None,
) -> StateTrace[RebalanceState]:
    return StateTrace(RebalanceState.UNJOINED, REBALANCE_TRANSITIONS, observer)


class ConsumerState(NamedTuple):
    """States of a consumer for logs and tests."""

    coordinator: CoordinatorState
    rebalance: RebalanceState
    troubles: Mapping[int, str]
    """Last failure of each node. -1 represents the bootstrap servers."""
