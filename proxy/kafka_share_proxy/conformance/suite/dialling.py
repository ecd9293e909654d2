"""Connections of the suite: addresses, TLS and SASL."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from kafka_share_proxy.conformance.suite.connection import ConnectionFailed, PeerConnection
from kafka_share_proxy.conformance.suite.dial_errors import dial_error
from kafka_share_proxy.conformance.suite.exchanges import Trail
from kafka_share_proxy.wire import sasl
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import Address

CLIENT_ID = "conformance"
CONNECT_S = 10.0
"""Seconds to open a connection, TLS included."""


@dataclass(frozen=True)
class Login:
    """Identity for SASL."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    username: str
    password: Callable[[], str]


@dataclass(frozen=True)
class Dialling:
    """Bootstrap servers, and what every connection needs."""

    bootstrap: Sequence[Address]
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """Name to verify; None for the host that is dialled."""
    login: Login | None = None

    async def connect(self, address: Address, trail: Trail) -> PeerConnection:
        """Return a new, authenticated connection. Raises ConnectionFailed."""
        try:
            with trio.fail_after(CONNECT_S):
                stream = await self._stream(address)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, ssl.SSLError) as error:
            raise ConnectionFailed(f"cannot connect to {address}: {dial_error(error)}") from None
        connection = PeerConnection(stream, address, CLIENT_ID, trail)
        try:
            if self.login is not None:
                await _authenticate(connection, self.login)
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def connect_bootstrap(self, trail: Trail) -> PeerConnection:
        """Return a connection to the first bootstrap server that accepts one. Raises ConnectionFailed."""
        for address in self.bootstrap[:-1]:
            try:
                return await self.connect(address, trail)
            except ConnectionFailed:
                continue
        return await self.connect(self.bootstrap[-1], trail)

    async def _stream(self, address: Address) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(*address)
        if self.tls is None:
            return stream
        encrypted = trio.SSLStream(stream, self.tls, server_hostname=self.server_name or address.host)
        try:
            await encrypted.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(encrypted)
            raise
        return encrypted


async def _authenticate(connection: PeerConnection, login: Login) -> None:
    """Send the requests of a login. Raises ConnectionFailed with the broker's reason."""
    steps = sasl.authentication(login.mechanism, login.username, login.password, is_required=True)
    response = None
    try:
        while True:
            key, version, message = next(steps) if response is None else steps.send(response)
            response = await connection.send_message(
                int(key), registry.versions(key)[1] if version is None else version, message
            )
    except StopIteration:
        return
    except ProxyError as error:
        raise ConnectionFailed(f"{connection.address} {error}") from None
