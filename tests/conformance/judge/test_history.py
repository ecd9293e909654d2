"""What is remembered over all connections."""

from __future__ import annotations

from typing import Any

from kafka_share_proxy.conformance.judge.history import FETCH_EPOCH_MAX
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode

from tests.support.judged import JudgedClient


def fetch(session: int, epoch: int) -> Any:
    return messages.FetchRequest(max_wait_ms=1, min_bytes=1, session_id=session, session_epoch=epoch)


def test_the_epoch_of_a_fetch_session_is_followed_by_node() -> None:
    client = JudgedClient()
    client.send(fetch(0, 0), messages.FetchResponse(session_id=5), version=13)
    client.send(fetch(0, 0), messages.FetchResponse(session_id=5), version=13, node=2, connection=2)
    client.send(fetch(5, 1), messages.FetchResponse(session_id=5), version=13)
    assert client.judge.history.fetch_epochs == {(1, 5): 2, (2, 5): 1}
    client.send(fetch(5, FETCH_EPOCH_MAX), messages.FetchResponse(session_id=5), version=13)
    assert client.judge.history.fetch_epochs[1, 5] == 1


def test_a_lost_fetch_session_is_forgotten() -> None:
    client = JudgedClient()
    client.send(fetch(0, 0), messages.FetchResponse(session_id=5), version=13)
    lost = messages.FetchResponse(session_id=0, error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    client.send(fetch(5, 1), lost, version=13)
    assert client.judge.history.fetch_epochs == {}


def test_a_lookup_on_one_connection_counts_for_all_of_the_client() -> None:
    client = JudgedClient()
    heartbeat = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    client.send(heartbeat, messages.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    client.send(
        heartbeat, messages.HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR), connection=3, client_id="d"
    )
    client.send(messages.FindCoordinatorRequest(coordinator_keys=["g"]), connection=2)
    connections = client.judge.history.connections
    assert (connections[1].wrong_coordinator, connections[3].wrong_coordinator) == (0, 1)


def test_a_closed_connection_is_forgotten() -> None:
    client = JudgedClient()
    client.send(messages.MetadataRequest(topics=[]))
    client.close()
    assert client.judge.history.connections == {}
