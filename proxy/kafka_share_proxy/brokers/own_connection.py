"""Connection of the proxy's own to one broker, under its own identity. Carries no client data.

`open_connection` dials, reads the broker's versions, and authenticates if the proxy has an identity. After that one
request at a time is sent. Sources: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152 (SASL), KIP-368 (session lifetime).
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import trio

from kafka_share_proxy.wire import sasl
from kafka_share_proxy.wire.codec import frame_sizes, frames
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost, error_name
from kafka_share_proxy.wire.values import Address, Limits

R = TypeVar("R", bound=Message)
"""Class of the response."""


CLIENT_ID = "kafka-share-proxy"
RESPONSE_TIMEOUT_S = 15.0
"""Seconds without a response after which the broker is given up."""
SESSION_SHARE = 0.8
"""Fraction of the session lifetime after which a session is renewed (KIP-368; clients re-authenticate at 85-95 %)."""
READ_BYTES = 64 << 10
END_OF_HEAD_TAG, END_OF_HEAD = 27502, b"\r\n\r\n"
"""Tagged field of the first request, which brokers ignore (KIP-482). An HTTP server takes it for the end of a request's
head and immediately responds that the request is bad. Otherwise both sides would wait until a timeout.
"""


class AuthenticationFailed(ProxyError):
    """The broker refuses the identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Principal at the brokers: the proxy's own, or a client's."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; for a client also OAUTHBEARER."""
    username: str
    password: Callable[[], str] = field(repr=False)
    """Read at every authentication, so that a changed password file takes effect."""
    fetch: Callable[[], Awaitable[str]] | None = field(default=None, repr=False)
    """Fetches a token to use as the password, at every authentication. Raises UpstreamLost if it fails."""

    async def secret(self) -> Callable[[], str]:
        """Return a function that returns the password or the fetched token."""
        if self.fetch is None:
            return self.password
        fetched = await self.fetch()
        return lambda: fetched


STREAM_ENDED = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError)
"""Errors of a stream that has ended. Others dialled it and may close it as well."""

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """Settings of the proxy's own connections."""

    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """Name to verify. None = the host that is dialled."""
    identity: Identity | None = None
    connect: Connect = trio.open_tcp_stream
    client_id: str = CLIENT_ID
    """Client id in every request of these connections. Quotas may depend on it."""
    requires_sasl: bool = False
    """True if a listener without SASL is refused where there is an identity. The proxy's own connections accept it."""
    tls_setting: str = "upstream.tls"
    """Setting to check if a broker speaks TLS and the proxy does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVersions:
    """ApiVersions response of a broker."""

    ranges: Mapping[int, tuple[int, int]]
    """API key -> (lowest, highest) version."""
    response: messages.ApiVersionsResponse | None


class OwnConnection:
    """Open connection to one broker. Not for concurrent tasks."""

    def __init__(self, address: Address, stream: trio.abc.Stream, settings: OwnSettings) -> None:
        self.address = address
        self.versions = BrokerVersions(ranges={}, response=None)
        self.expires = math.inf
        """Time (trio.current_time) at which to renew the SASL session or replace the connection."""
        self.responded = False
        """True after a response that needs an identity if the broker requires one."""
        self.closed = False
        """True after `aclose`."""
        self._stream = stream
        self._settings = settings
        self._correlation_ids = count(1)
        self._received = bytearray()

    async def send_request(self, key: int, message: RequestMessage[R], version: int | None = None) -> R:
        """Send a request and return the response, in the highest common version unless one is passed.

        Raises UpstreamLost if the connection ends or stays silent, RemoteProtocolError if the response is invalid. The
        connection is unusable after either.
        """
        chosen = self._common_version(key) if version is None else version
        correlation_id = next(self._correlation_ids)
        request = frames.request(key, chosen, correlation_id, self._settings.client_id, message)
        frame = await self._respond_to(request)
        if key == ApiKey.API_VERSIONS and unsupported_api_versions(frame):
            chosen = 0  # KIP-511: a broker that does not know the version responds in the oldest
        response: R
        correlation_id_received, response = frames.decode_response(key, chosen, frame)
        if correlation_id_received != correlation_id:
            raise RemoteProtocolError(
                f"{self.address} answered request {correlation_id_received}, {correlation_id} was asked"
            )
        return response

    def hand_over(self) -> trio.abc.Stream:
        """Return the stream, for a caller that pipelines requests. Do not send requests here afterwards.

        Raises RemoteProtocolError if the broker has sent more than responses.
        """
        if self._received:
            raise RemoteProtocolError(f"{self.address} sent {len(self._received)} bytes that nobody asked for")
        return self._stream

    async def aclose(self) -> None:
        """Close, without waiting for the peer."""
        self.closed = True
        await trio.aclose_forcefully(self._stream)

    async def _respond_to(self, request: bytes) -> bytes:
        try:
            with trio.fail_after(RESPONSE_TIMEOUT_S):
                await self._stream.send_all(request)
                return await self._frame()
        except trio.TooSlowError:
            raise UpstreamLost(f"{self.address} did not answer within {RESPONSE_TIMEOUT_S:g} s") from None
        except STREAM_ENDED as error:
            raise UpstreamLost(f"{self.address}: {reason_of(error)}") from None

    def _common_version(self, key: int) -> int:
        ours, theirs = registry.versions(key), self.versions.ranges.get(key)
        if theirs is None or max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
            raise RemoteProtocolError(f"{self.address} has no version of {registry.API_KEYS[key]} that is known here")
        return min(ours[1], theirs[1])

    async def _frame(self) -> bytes:
        head = await self._exactly(4)
        size = int.from_bytes(head, "big", signed=True)
        if not frame_sizes.RESPONSE_MIN <= size <= self._settings.limits.collected_bytes:
            error = frame_sizes.wrong_size(size, self._settings.limits.collected_bytes, frame_sizes.RESPONSE_MIN)
            advice = f"; see {self._settings.tls_setting}" if frame_sizes.hint(head).startswith("a TLS") else ""
            raise RemoteProtocolError(f"{self.address} sent: {error}{advice}")
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            chunk = await self._stream.receive_some(READ_BYTES)
            if not chunk:
                raise UpstreamLost(f"{self.address} closed the connection")
            self._received += chunk
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


@asynccontextmanager
async def connection(address: Address, settings: OwnSettings) -> AsyncIterator[OwnConnection]:
    """Open a connection for a few requests, closed at the end."""
    opened = await open_connection(address, settings)
    try:
        yield opened
    finally:
        await opened.aclose()


async def open_connection(address: Address, settings: OwnSettings) -> OwnConnection:
    """Dial, read the versions, authenticate.

    Raises UpstreamLost if the broker cannot be reached, AuthenticationFailed if it refuses the identity,
    RemoteProtocolError if it does not speak Kafka.
    """
    opened = OwnConnection(address, await _dial(address, settings), settings)
    try:
        opened.versions = await _first_response(opened, settings)
        if settings.identity is not None:
            await _authenticate(opened, settings.identity, is_required=settings.requires_sasl)
    except OSError as error:  # no descriptor was left to load the library of SCRAM with
        await opened.aclose()
        raise UpstreamLost(f"{address}: {reason_of(error)}") from None
    except BaseException:
        await opened.aclose()
        raise
    return opened


async def _dial(address: Address, settings: OwnSettings) -> trio.abc.Stream:
    try:
        with trio.fail_after(settings.limits.dial_timeout_s):
            stream = await settings.connect(address.host, address.port)
            if settings.tls is None:
                return stream
            secured = trio.SSLStream(
                stream, settings.tls, server_hostname=settings.server_name or address.host, https_compatible=True
            )
            try:
                await secured.do_handshake()
            except STREAM_ENDED as error:
                await trio.aclose_forcefully(stream)
                raise UpstreamLost(f"{address}: {handshake_failure(error, settings.tls_setting)}") from None
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            return secured
    except trio.TooSlowError:
        raise UpstreamLost(f"{address}: no connection within {settings.limits.dial_timeout_s:g} s") from None
    except STREAM_ENDED as error:
        raise UpstreamLost(f"{address}: {reason_of(error)}") from None


async def _first_response(opened: OwnConnection, settings: OwnSettings) -> BrokerVersions:
    try:
        return await _request_versions(opened)
    except UpstreamLost as error:
        if settings.tls is not None:
            raise
        raise UpstreamLost(f"{error} (as a TLS listener does: see {settings.tls_setting})") from None


async def _request_versions(opened: OwnConnection) -> BrokerVersions:
    request = messages.ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    request.unknown_tags = ((END_OF_HEAD_TAG, END_OF_HEAD),)
    response = await opened.send_request(ApiKey.API_VERSIONS, request, version=3)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        response = await _request_versions_again(opened, response)
    if response.error_code != ErrorCode.NONE:
        raise RemoteProtocolError(f"{opened.address} answered ApiVersions v3 with {error_name(response.error_code)}")
    return BrokerVersions(
        ranges={entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys or ()},
        response=response,
    )


async def _request_versions_again(
    opened: OwnConnection, refusal: messages.ApiVersionsResponse
) -> messages.ApiVersionsResponse:
    """Repeat the request in the best version that the refusal lists, or in the oldest if it lists none (KIP-511)."""
    known = {entry.api_key: (entry.min_version, entry.max_version) for entry in refusal.api_keys or ()}
    theirs, ours = known.get(ApiKey.API_VERSIONS, (0, 0)), registry.versions(ApiKey.API_VERSIONS)
    version = min(theirs[1], ours[1])
    if version < max(theirs[0], ours[0]):
        raise RemoteProtocolError(f"{opened.address} has ApiVersions {theirs[0]} to {theirs[1]}, none is known here")
    request = messages.ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    return await opened.send_request(ApiKey.API_VERSIONS, request, version=version)


def unsupported_api_versions(frame: bytes) -> bool:
    """True for an ApiVersions response UNSUPPORTED_VERSION. All versions begin with correlation id and error code."""
    return len(frame) >= 6 and int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


async def mechanisms(opened: OwnConnection, mechanism: str = "PLAIN") -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener. Empty if it does not authenticate.

    Call it on a connection that has not authenticated. The connection is unusable afterwards.
    """
    request = messages.SaslHandshakeRequest(mechanism=mechanism)
    response = await opened.send_request(ApiKey.SASL_HANDSHAKE, request, version=sasl.HANDSHAKE_VERSION)
    return () if response.error_code == ErrorCode.ILLEGAL_SASL_STATE else tuple(response.mechanisms or ())


async def _authenticate(opened: OwnConnection, identity: Identity, *, is_required: bool) -> None:
    secret = await identity.secret()
    asking = sasl.authentication(identity.mechanism, identity.username, secret, is_required=is_required)
    response = None
    try:
        while True:
            key, query = asking.send(response)
            version = sasl.HANDSHAKE_VERSION if key == ApiKey.SASL_HANDSHAKE else None
            response = await opened.send_request(key, query, version)
    except StopIteration as ended:
        opened.expires = session_ends(ended.value)
    except sasl.LoginFailed as error:
        raise AuthenticationFailed(f"{opened.address} {error}") from None


def session_ends(lifetime_ms: int) -> float:
    """Return when (trio.current_time) to renew a session that begins now. inf if `lifetime_ms` is 0: no lifetime."""
    return trio.current_time() + SESSION_SHARE * lifetime_ms / 1000 if lifetime_ms > 0 else math.inf


def reason_of(error: BaseException) -> str:
    """Return the text of an error of the operating system or of TLS, without decoration."""
    while isinstance(error, trio.BrokenResourceError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, OSError) and error.__cause__ is not None and error.errno is None:
        return "; ".join(dict.fromkeys(reason_of(inner) for inner in _inner(error.__cause__)))
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


_NOT_TLS = frozenset({"UNEXPECTED_EOF_WHILE_READING", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""Reasons of OpenSSL when a peer without TLS closes the connection or replies in another protocol."""


def handshake_failure(error: BaseException, tls_setting: str) -> str:
    """Return why a TLS handshake failed, with the setting to check if the peer seems not to speak TLS."""
    while isinstance(error, trio.BrokenResourceError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return reason_of(error)
    if isinstance(error, ConnectionError) or getattr(error, "reason", None) in _NOT_TLS:
        return f"the TLS handshake failed: this looks like a listener without TLS (see {tls_setting})"
    return f"the TLS handshake failed: {reason_of(error).removeprefix('TLS: ')} (see {tls_setting})"


def _inner(error: BaseException) -> Sequence[BaseException]:
    """Return the errors of all addresses of a name, since Trio tries each."""
    return error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
