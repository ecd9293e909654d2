"""States of the coordinator and of a rebalance: the chains of the proposal, and no others."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from kafka_share_proxy.consumer.groups import states
from kafka_share_proxy.consumer.groups.states import (
    COORDINATOR_TRANSITIONS,
    REBALANCE_TRANSITIONS,
    CoordinatorState,
    RebalanceState,
    coordinator_trace,
    rebalance_trace,
)
from kafka_share_proxy.wire.errors import LocalProtocolError

README = Path(states.__file__).parents[1] / "README.md"
CHAINS = {
    "first join": "UNJOINED PREPARING_REBALANCE COMPLETING_REBALANCE ASSIGNING_PARTITIONS STABLE",
    "eager": "STABLE PREPARE_REVOCATION REVOKING_PARTITION PARTITION_REVOKED PREPARING_REBALANCE COMPLETING_REBALANCE "
    "ASSIGNING_PARTITIONS STABLE",
    "cooperative": "STABLE PREPARE_REVOCATION REVOKING_PARTITION PARTITION_REVOKED COMPLETING_REBALANCE "
    "ASSIGNING_PARTITIONS STABLE",
    "cooperative without revocations": "STABLE COMPLETING_REBALANCE ASSIGNING_PARTITIONS STABLE",
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_chains_of_the_proposal_are_allowed(name: str) -> None:
    chain = [RebalanceState[each] for each in CHAINS[name].split()]
    assert all(after in REBALANCE_TRANSITIONS[before] for before, after in pairwise(chain))


def test_an_illegal_transition_raises_and_changes_nothing() -> None:
    received: list[object] = []
    for before in RebalanceState:
        for after in set(RebalanceState) - REBALANCE_TRANSITIONS[before]:
            trace = rebalance_trace(received.append)
            trace.state = before
            with pytest.raises(LocalProtocolError, match=f"{before.value} is not followed by {after.value}"):
                trace.to(after, 1.0, "a test")
            assert (trace.state, trace.changes, received) == (before, [], [])


def test_every_state_is_reached_and_left() -> None:
    for table, first in ((COORDINATOR_TRANSITIONS, "DOWN"), (REBALANCE_TRANSITIONS, "UNJOINED")):
        reached = {after for each in table.values() for after in each}
        assert reached == set(table)
        assert all(table.values())
        assert type(next(iter(table)))[first] in table


def test_the_table_in_the_readme_is_the_table() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| ([A-Z_, ]+) \|$", README.read_text(), re.MULTILINE)
    transitions = {
        RebalanceState[state]: frozenset(RebalanceState[each] for each in to.split(", ")) for state, to in rows
    }
    assert transitions == REBALANCE_TRANSITIONS


def test_an_observer_gets_each_transition_with_time_and_reason() -> None:
    received: list[str] = []
    trace = coordinator_trace(lambda change: received.append(f"{change.now:g} {change.after.value}: {change.reason}"))
    trace.to(CoordinatorState.INITIALIZED, 1.0, "started")
    trace.to(CoordinatorState.COORDINATOR_DISCOVERY, 2.5, "a commit")
    assert received == ["1 initialized: started", "2.5 coordinator_discovery: a commit"]
    assert [each.value for each in trace.chain()] == ["down", "initialized", "coordinator_discovery"]


def test_a_trace_forgets_the_oldest() -> None:
    trace = coordinator_trace()
    trace.to(CoordinatorState.INITIALIZED, 0.0, "started")
    for _ in range(states.TRACE_MAX):
        trace.to(CoordinatorState.COORDINATOR_DISCOVERY, 0.0, "lost")
        trace.to(CoordinatorState.STABLE, 0.0, "found")
    assert len(trace.changes) == states.TRACE_MAX
    assert trace.chain()[0] is CoordinatorState.STABLE
