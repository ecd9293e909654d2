"""State of a moving connection as bytes. tests/fleet/test_moved_clients.py moves connections."""

from __future__ import annotations

from math import inf

import pytest
from kafka_share_proxy.fleet.moved_clients import MESSAGE_BYTES_MAX
from kafka_share_proxy.forwarding import moved_connection
from kafka_share_proxy.forwarding.moved_connection import UNREAD_BYTES_MAX
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RemoteProtocolError


def test_every_value_returns() -> None:
    state = messages.MovedClient(
        node_id=-1,
        client_host="::1",
        broker_host="kafka",
        broker_port=65535,
        moves=3,
        opened_at=1.5,
        is_authenticated=True,
        user=None,
        session_ends=inf,
        software=None,
        unread=b"abc",
    )
    assert moved_connection.decode(moved_connection.encode(state)) == state


def test_bytes_sent_fit_into_a_message() -> None:
    """With the longest values of the other fields."""
    state = messages.MovedClient(
        client_host="f" * 64,
        broker_host="b" * 255,
        user="\u20ac" * 255,
        software=["\u20ac" * 1360, "n" * 249, "v" * 249],
        unread=bytes(UNREAD_BYTES_MAX),
    )
    assert len(moved_connection.encode(state)) <= MESSAGE_BYTES_MAX


def test_incomplete_state_is_not_decoded() -> None:
    whole = moved_connection.encode(messages.MovedClient(unread=b"abc", software=["a", "b", "c"]))
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            moved_connection.decode(whole[:size])


def test_another_version_is_not_decoded() -> None:
    """Workers of two versions run side by side during an upgrade."""
    with pytest.raises(RemoteProtocolError, match="MovedClient of version 1 is not known here"):
        moved_connection.decode(b"\0\1" + moved_connection.encode(messages.MovedClient())[2:])
