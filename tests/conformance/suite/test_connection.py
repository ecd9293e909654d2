"""Connections of the suite, against scripted peers."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.suite import connection as connections
from kafka_share_proxy.conformance.suite.building import build
from kafka_share_proxy.conformance.suite.connection import BadResponse, ConnectionFailed, PeerConnection
from kafka_share_proxy.conformance.suite.dialling import Dialling
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.wire.codec import frames

from tests.support.scripted_peer import Respond, scripted_peer, versions


async def query(respond: Respond, trail: Trail | None = None) -> Any:
    async with scripted_peer(respond) as address:
        connection = await Dialling([address]).connect(address, trail or Trail())
        try:
            return await connection.request("ApiVersions", 0)
        finally:
            await connection.aclose()


async def test_a_response_is_decoded() -> None:
    response = await query(lambda *_: versions(Fetch=(4, 17)))
    assert response.api_keys[0].max_version == 17


async def test_another_correlation_id_is_refused() -> None:
    with pytest.raises(BadResponse, match="correlation id 99"):
        await query(lambda *_: frames.response(18, 0, 99, versions()))


async def test_a_byte_too_many_is_refused() -> None:
    def respond(*_: object) -> bytes:
        frame = frames.response(18, 0, 1, versions())[4:] + b"\0"
        return len(frame).to_bytes(4, "big") + frame

    with pytest.raises(BadResponse, match="1 bytes too many"):
        await query(respond)


async def test_an_invalid_size_is_refused() -> None:
    with pytest.raises(BadResponse, match="a response of -1 bytes"):
        await query(lambda *_: b"\xff\xff\xff\xff")


async def test_the_end_of_a_connection_is_noted() -> None:
    trail = Trail()
    with pytest.raises(ConnectionFailed, match="closed the connection"):
        await query(lambda *_: None, trail)
    assert [each.ending for each in trail.last(1)] == ["the peer closed the connection"]


async def test_a_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RESPONSE_S", 0.1)
    with pytest.raises(ConnectionFailed, match="no response within"):
        await query(lambda *_: b"")


async def test_closing_by_the_peer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CLOSE_S", 0.2)
    for respond, expected in ((lambda *_: None, True), (lambda *_: b"\0", False), (lambda *_: b"", False)):
        async with scripted_peer(respond) as address:
            connection: PeerConnection = await Dialling([address]).connect(address, Trail())
            await connection.send(18, 0, build("ApiVersions"))
            assert await connection.is_closed_by_peer() is expected
            await connection.aclose()


async def test_pipelined_responses_are_received_in_order() -> None:
    async with scripted_peer(lambda _, version, __: versions(Fetch=(0, version))) as address:
        connection = await Dialling([address]).connect(address, Trail())
        sent = [await connection.send(18, version, build("ApiVersions")) for version in (0, 1, 2)]
        received = [(await connection.receive(each)).api_keys[0].max_version for each in sent]
        await connection.aclose()
    assert received == [0, 1, 2]
