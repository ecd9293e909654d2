"""Traces of one client on a data plane: what is written, of whom, and that everything else stays as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka_share_proxy.forwarding.client_trace import client_trace
from kafka_share_proxy.forwarding.client_trace.client_trace import TraceLimits
from kafka_share_proxy.wire.codec import frames
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

from tests.forwarding.plane_world import LOCAL, Peer, World, some_routes, world

ADDRESS = "127.0.0.1"
HEARTBEAT_ID = 12
"""API key."""


def heartbeat(correlation_id: int, client_id: str = "app", group: str = "g") -> bytes:
    message = messages.HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    return frames.request(HEARTBEAT_ID, 4, correlation_id, client_id, message)


def heartbeat_response(correlation_id: int, error_code: int = 0) -> bytes:
    return frames.response(HEARTBEAT_ID, 4, correlation_id, messages.HeartbeatResponse(error_code=error_code))


def exchanged(client: Peer, broker: Peer, correlation_id: int, client_id: str = "app") -> None:
    """Send a request and its response, unchanged."""
    client.send(heartbeat(correlation_id, client_id))
    broker.expect(heartbeat(correlation_id, client_id))
    broker.send(heartbeat_response(correlation_id))
    client.expect(heartbeat_response(correlation_id))


def connected(w: World, client_id: str = "app") -> tuple[Peer, Peer]:
    client, before = w.client(), len(w.brokers)
    client.send(heartbeat(0, client_id))
    w.iterate_until(lambda: len(w.brokers) > before)
    broker = w.brokers[-1]
    broker.expect(heartbeat(0, client_id))
    broker.send(heartbeat_response(0))
    client.expect(heartbeat_response(0))
    return client, broker


def lines(w: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in w.plane.client_trace.after(0)["lines"]]


def summaries(w: World) -> list[str]:
    """Return > for requests and < for responses, with API and correlation id."""
    return [
        f"{'>' if 'request' in line else '<'} {line.get('request') or line['response']} {line.get('correlation_id')}"
        for line in lines(w)
    ]


def test_an_existing_connection_is_traced_by_address_until_the_trace_ends() -> None:
    with world() as w:
        client, broker = connected(w)
        exchanged(client, broker, 1)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        exchanged(client, broker, 2)
        exchanged(client, broker, 3)
        w.plane.client_trace.finish("enough")
        exchanged(client, broker, 4)
        assert summaries(w) == ["> Heartbeat 2", "< Heartbeat 2", "> Heartbeat 3", "< Heartbeat 3"]
        first, second, *_ = lines(w)
        assert (first["client_id"], first["version"], first["bytes"]) == ("app", 4, len(heartbeat(2)) - 4)
        assert first["body"] == {"GroupId": "g", "GenerationId": 1, "MemberId": "m", "GroupInstanceId": None}
        assert second["body"] == {"ThrottleTimeMs": 0, "ErrorCode": 0}
        assert second["ms"] > 0
        assert w.plane.client_trace.after(2)["lines"] == w.plane.client_trace.after(0)["lines"][2:]
        assert w.events() == [client_trace.BEGAN, client_trace.ENDED]


def test_only_the_connections_of_the_client_id_are_traced() -> None:
    with world() as w:
        before = {name: connected(w, name) for name in ("app", "other")}
        w.plane.client_trace.begin("app", TraceLimits())
        after = {name: connected(w, name) for name in ("app", "other")}
        for pairs in (before, after):
            for name, (client, broker) in pairs.items():
                exchanged(client, broker, 7, name)
                exchanged(client, broker, 8, name)
        assert {line.get("client_id", "app") for line in lines(w)} == {"app"}
        assert {line["connection"] for line in lines(w)} == {1, 3}
        assert summaries(w).count("> Heartbeat 7") == 2


def test_a_frame_in_progress_is_not_traced_and_the_next_one_is() -> None:
    with world() as w:
        client, broker = connected(w)
        sent, responded = heartbeat(1), heartbeat_response(1)
        client.send(sent[:20])
        broker.expect(sent[:20])
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        client.send(sent[20:] + heartbeat(2))
        broker.expect(sent[20:] + heartbeat(2))
        broker.send(responded + heartbeat_response(2))
        client.expect(responded + heartbeat_response(2))
        assert summaries(w) == ["> Heartbeat 2", "< unknown 1", "< Heartbeat 2"]


def test_a_response_in_progress_is_not_traced_and_the_next_one_is() -> None:
    with world() as w:
        client, broker = connected(w)
        client.send(heartbeat(1) + heartbeat(2))
        broker.expect(heartbeat(1) + heartbeat(2))
        broker.send(heartbeat_response(1)[:9])
        client.expect(heartbeat_response(1)[:9])
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        broker.send(heartbeat_response(1)[9:] + heartbeat_response(2))
        client.expect(heartbeat_response(1)[9:] + heartbeat_response(2))
        assert summaries(w) == ["< unknown 2"]


def test_a_request_that_is_served_here_is_traced_with_its_response() -> None:
    served = frames.response(LOCAL, 1, 5, messages.ShareGroupHeartbeatResponse(member_epoch=4))

    async def local(_call: object) -> bytes:
        return served

    with world(some_routes(local=local)) as w:
        client, _ = connected(w)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        sent = messages.ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
        client.send(frames.request(LOCAL, 1, 5, "app", sent))
        client.expect(served)
        assert summaries(w) == ["> ShareGroupHeartbeat 5", "< ShareGroupHeartbeat 5"]
        assert lines(w)[1]["body"]["MemberEpoch"] == 4


def test_the_trace_ends_at_its_limit_of_lines_and_the_client_is_served_on() -> None:
    with world() as w:
        client, broker = connected(w)
        w.plane.client_trace.begin(ADDRESS, TraceLimits(lines=3))
        for number in range(1, 5):
            exchanged(client, broker, number)
        assert len(lines(w)) in (3, 4)
        assert (w.plane.client_trace.is_on, w.plane.client_trace.ended) == (False, "it has reached a limit of trace")


def test_the_trace_ends_when_its_time_is_over() -> None:
    with world() as w:
        w.plane.client_trace.begin(ADDRESS, TraceLimits(seconds=0.01))
        w.iterate_until(lambda: not w.plane.client_trace.is_on)
        assert w.plane.client_trace.ended == "its time is over"


def test_connections_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_trace, "CONNECTIONS_MAX", 1)
    with world() as w:
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        pairs = [connected(w), connected(w)]
        for client, broker in pairs:
            exchanged(client, broker, 9)
        assert {line["connection"] for line in lines(w)} == {1}
        assert w.plane.client_trace.after(0)["connections_left_out"] == 1
        pairs[0][0].close()
        w.iterate_until(lambda: len(list(w.plane.connections())) == 1)
        connected(w)
        assert {line["connection"] for line in lines(w)} == {1, 3}


def test_a_long_line_has_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_trace, "LINE_CHARACTERS_MAX", 200)
    with world() as w:
        client, broker = connected(w)
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        client.send(heartbeat(1, group="g" * 300))
        broker.frame()
        (line,) = lines(w)
        assert ("body" in line, line["not_decoded"]) == (False, "longer than 200 characters")


def test_tokens_of_sasl_without_headers_are_never_written() -> None:
    with world() as w:
        client = w.client()
        w.plane.client_trace.begin(ADDRESS, TraceLimits())
        hello = frames.request(ApiKey.SASL_HANDSHAKE, 0, 1, "app", messages.SaslHandshakeRequest(mechanism="PLAIN"))
        client.send(hello)
        w.iterate_until(lambda: w.brokers)
        broker = w.brokers[-1]
        broker.expect(hello)
        shaken = frames.response(ApiKey.SASL_HANDSHAKE, 0, 1, messages.SaslHandshakeResponse(mechanisms=["PLAIN"]))
        broker.send(shaken)
        client.expect(shaken)
        token = b"\0alice\0correct-horse"
        framed = len(token).to_bytes(4, "big") + token
        client.send(framed)
        broker.expect(framed)
        broker.send(bytes(4))
        client.expect(bytes(4))
        exchanged(client, broker, 2)
        assert summaries(w)[2:] == ["> SASL token None", "< SASL token None", "> Heartbeat 2", "< Heartbeat 2"]
        assert "correct-horse" not in json.dumps(lines(w))
