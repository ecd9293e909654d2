"""Connections with and without logins."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_share_proxy.conformance.suite.connection import ConnectionFailed
from kafka_share_proxy.conformance.suite.dialling import Dialling, Login
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.wire.values import Address

from tests.support.scripted_peer import response, scripted_peer, versions

NOBODY = Address("127.0.0.1", 1)


def with_sasl(api: str, _version: int, message: Any) -> Any:
    """A broker that accepts the user alice with PLAIN."""
    if api == "SaslHandshake":
        return response(api, error_code=0, mechanisms=["PLAIN"])
    if api == "SaslAuthenticate":
        is_right = bytes(message.auth_bytes) == b"\0alice\0secret"
        return response(api, error_code=0 if is_right else 58, error_message=None if is_right else "wrong password")
    return versions()


async def test_the_first_server_that_accepts_is_used() -> None:
    async with scripted_peer(lambda *_: versions()) as address:
        connection = await Dialling([NOBODY, address]).connect_bootstrap(Trail())
        assert connection.address == address
        await connection.aclose()


async def test_an_unreachable_server_is_named() -> None:
    with pytest.raises(ConnectionFailed, match=r"cannot connect to 127\.0\.0\.1:1"):
        await Dialling([NOBODY]).connect_bootstrap(Trail())


async def test_a_login_precedes_the_first_request() -> None:
    async with scripted_peer(with_sasl) as address:
        dialling = Dialling([address], login=Login("PLAIN", "alice", lambda: "secret"))
        connection = await dialling.connect_bootstrap(Trail())
        assert (await connection.request("ApiVersions", 0)).error_code == 0
        await connection.aclose()


async def test_a_refused_login_shows_the_brokers_reason() -> None:
    async with scripted_peer(with_sasl) as address:
        dialling = Dialling([address], login=Login("PLAIN", "alice", lambda: "guess"))
        with pytest.raises(ConnectionFailed, match="wrong password"):
            await dialling.connect_bootstrap(Trail())
