"""Requests of the proxy itself, and its responses."""

from __future__ import annotations

import pytest
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import decode_response, reply, send_request
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import ErrorCode, RemoteProtocolError


def test_a_request_reaches_the_broker_and_its_response_returns(world):
    """Encoded in the requested version, without header."""
    request = messages.HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    response = send_request(world.client, 12, 4, request).result()
    assert decode_response(messages.HeartbeatResponse, 4, response).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    ((key, version, heartbeat),) = world.broker.requested
    assert (key, version, heartbeat.group_id, heartbeat.generation_id) == (12, 4, "g", 3)


def test_a_malformed_response_is_the_brokers_fault():
    """Bytes missing or left over end the connection with a clear error."""
    for response in (b"", b"\x00" * 100):
        with pytest.raises(RemoteProtocolError):
            decode_response(messages.HeartbeatResponse, 4, memoryview(response))


def test_a_reply_has_the_callers_correlation_id(world):
    """A whole frame with its size, in the caller's version."""
    call = Call(12, 4, 99, "client", None, world.client)
    frame = reply(call, messages.HeartbeatResponse(error_code=25))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, response = frames.decode_response(12, 4, memoryview(frame)[4:])
    assert (correlation_id, response.error_code) == (99, 25)
