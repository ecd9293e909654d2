"""The states of a client connection: every move of the tables, and no other."""

from __future__ import annotations

from itertools import product

import pytest
from kafka_share_proxy.forwarding.connection_state import (
    CLIENT_STATES,
    UPSTREAM_STATES,
    ClientState,
    Progress,
    UpstreamState,
)
from kafka_share_proxy.wire.errors import LocalProtocolError

CLIENT_MOVES = [
    ("PASSING", "GATHERING"),
    ("PASSING", "INTRODUCING"),
    ("PASSING", "HANDSHAKING"),
    ("PASSING", "RESUMING"),
    ("GATHERING", "PASSING"),
    ("GATHERING", "MUTED"),
    ("PASSING", "SERVING"),
    ("MUTED", "SERVING"),
    ("SERVING", "RESPONDING"),
    ("SERVING", "PASSING"),
    ("SERVING", "MOVING"),
    ("MOVING", "SERVING"),
    ("PASSING", "MOVING"),
    ("MOVING", "PASSING"),
    ("RESPONDING", "PASSING"),
    ("INTRODUCING", "PASSING"),
    ("HANDSHAKING", "PASSING"),
    ("RESUMING", "PASSING"),
    *((state.name, "CLOSED") for state in ClientState if state is not ClientState.CLOSED),
]
"""Moves in the module's drawing."""

UPSTREAM_MOVES = [("UNDIALLED", "DIALLING"), ("DIALLING", "OPEN"), ("OPEN", "REFUSING")]


@pytest.mark.parametrize(
    ("first", "to", "is_legal"),
    [
        *((a, b, (a.name, b.name) in CLIENT_MOVES) for a, b in product(ClientState, ClientState)),
        *((a, b, (a.name, b.name) in UPSTREAM_MOVES) for a, b in product(UpstreamState, UpstreamState)),
    ],
)
def test_a_state_leads_only_to_those_in_the_table(
    first: ClientState | UpstreamState, to: ClientState | UpstreamState, is_legal: bool
) -> None:
    """An illegal move raises and changes nothing."""
    progress = Progress(first)  # type: ignore[type-var]
    if is_legal:
        progress.move(to)
        assert progress.now is to
    else:
        with pytest.raises(LocalProtocolError, match=f"from {first.name} to {to.name}"):
            progress.move(to)
        assert progress.now is first


def test_every_state_can_be_reached_and_closed_is_the_only_end() -> None:
    for table, first in ((CLIENT_STATES, ClientState.PASSING), (UPSTREAM_STATES, UpstreamState.UNDIALLED)):
        reached, waiting = {first}, [first]
        while waiting:
            for state in table[waiting.pop()]:  # type: ignore[index]
                if state not in reached:
                    reached.add(state)
                    waiting.append(state)
        assert reached == set(table)
    assert [state for state, leads_to in CLIENT_STATES.items() if not leads_to] == [ClientState.CLOSED]


def test_a_client_is_read_only_while_its_requests_pass_or_are_gathered() -> None:
    """A broker reads nothing from a muted channel either."""
    assert {state.name for state in ClientState if state.reads_requests} == {"PASSING", "GATHERING"}
    assert {state.name for state in ClientState if state.is_muted} == {"MUTED", "SERVING", "MOVING", "RESPONDING"}
