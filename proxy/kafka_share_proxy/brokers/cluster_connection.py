"""Connection of the proxy's own to one broker, under its own identity. Carries no client data.

Sources: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152 (SASL), KIP-368 (session lifetime).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, NamedTuple, TypeVar

import trio

from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.loop.tls_context import TlsContext
from kafka_share_proxy.wire import broker_versions, sasl
from kafka_share_proxy.wire.codec import frame_sizes, frames, headers
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import MIB, Address

R = TypeVar("R", bound=Message)
"""Class of the response."""
T = TypeVar("T")


CLIENT_ID = "kafka-share-proxy"
RESPONSE_TIMEOUT_S = 15.0
"""Seconds without a response after which the broker is given up."""
SESSION_SHARE = 0.8
"""Fraction of the session lifetime after which a session is renewed (KIP-368)."""
READ_BYTES = 64 << 10
CORRELATION_ID_BYTES = 4
REPEATED = frozenset((ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS))
"""APIs that are requested periodically, and whose response is usually the same."""
REPEATED_BYTES = 64 << 10
"""Maximum bytes of a response that is kept to recognise the next one."""


class AuthenticationFailed(ProxyError):
    """The broker refuses the identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Principal at the brokers: the proxy's own, or a client's."""

    mechanism: str
    username: str
    password: Callable[[], str] = field(repr=False)
    """Function that returns the password. Called at every authentication: a changed file takes effect."""
    fetch: Callable[[], Awaitable[str]] | None = field(default=None, repr=False)
    """Fetches a token as the password. Raises UpstreamLost."""

    async def secret(self) -> Callable[[], str]:
        if self.fetch is None:
            return self.password
        fetched = await self.fetch()
        return lambda: fetched


STREAM_ENDED = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError)
"""Errors of a stream that has ended."""

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterClientSettings:
    """Settings of the proxy's own connections."""

    dial_timeout_s: float = 10.0
    """Seconds for one attempt to connect to one address, TLS included."""
    response_bytes: int = 64 * MIB
    """Largest response, in bytes, that is accepted."""
    tls: TlsContext | None = None
    server_name: str | None = None
    """None: the host that is dialled."""
    identity: Identity | None = None
    connect: Connect = trio.open_tcp_stream
    client_id: str = CLIENT_ID
    """Client id in every request, for quotas."""
    requires_sasl: bool = False
    """True to refuse a listener without SASL where there is an identity."""
    tls_setting: str = "upstream.tls"
    """Setting to check if a broker speaks TLS and the proxy does not."""
    reactor: Reactor | None = field(default=None, repr=False, compare=False)
    """Loop that hosts Trio, which can repeat requests by itself (`repeated_request`). None if there is none."""


class BrokerVersions(NamedTuple):
    """ApiVersions response of a broker."""

    ranges: Mapping[int, tuple[int, int]]
    """API key -> (lowest, highest) version."""
    response: messages.ApiVersionsResponse | None


class InFlight(NamedTuple):
    """Request that was sent outside of `send_request`, and whose response is due."""

    correlation_id: int
    unsent: bytes
    sent: float
    """trio.current_time() when it was sent."""


class ClusterConnection:
    """Open connection to one broker. Not for concurrent tasks."""

    def __init__(self, address: Address, stream: trio.abc.Stream, settings: ClusterClientSettings) -> None:
        self.address = address
        self.versions = BrokerVersions(ranges={}, response=None)
        self.expires = inf
        """Time (trio.current_time) at which to renew the SASL session or replace the connection."""
        self.responded = False
        self.closed = False
        self._stream = stream
        self._settings = settings
        self.correlation_ids = count(1)
        """Continued by a caller that has the stream, so that no two consecutive requests have the same id."""
        self._received = bytearray()
        self._last: dict[int, tuple[int, bytes, Any]] = {}
        """Version, bytes after the correlation id, and message of the last response, by API key in `REPEATED`."""

    async def send_request(self, key: int, message: RequestMessage[R], version: int | None = None) -> R:
        """Return the response, in the highest common version unless one is passed. It must not be changed.

        Raises UpstreamLost if the connection ends or stays silent, RemoteProtocolError if the response is invalid. The
        connection is unusable after either.
        """
        chosen = self.common_version(key) if version is None else version
        correlation_id = next(self.correlation_ids)
        frame = await self._respond_to(self.request(key, chosen, correlation_id, message), RESPONSE_TIMEOUT_S)
        if key == ApiKey.API_VERSIONS and broker_versions.is_unsupported_version(frame):
            chosen = 0
        decoded: R = self._response(key, chosen, correlation_id, frame)
        return decoded

    def request(self, key: int, version: int, correlation_id: int, message: Message) -> bytes:
        """Return the frame of a request, with its size."""
        return frames.request(key, version, correlation_id, self._settings.client_id, message)

    async def begin_request(self, key: int, message: RequestMessage[R], patience_s: float) -> R | InFlight:
        """Return the response if it arrives within `patience_s`. Otherwise `finish` must receive it.

        Raises as `send_request`.
        """
        version = self.common_version(key)
        correlation_id = next(self.correlation_ids)
        request = self.request(key, version, correlation_id, message)
        try:
            in_flight = InFlight(correlation_id, request[self._sent_now(request) :], trio.current_time())
        except OSError as error:
            raise UpstreamLost(f"{self.address}: {reason_of(error)}") from None
        if in_flight.unsent:
            return in_flight
        with trio.move_on_after(patience_s):
            frame = await self._respond_to(b"", inf)
            decoded: R = self._response(key, version, correlation_id, frame)
            return decoded
        return in_flight

    async def finish(self, key: int, version: int, in_flight: InFlight) -> Any:
        """Return the response of a request that was sent outside of `send_request`. Raises as `send_request`."""
        timeout_s = in_flight.sent + RESPONSE_TIMEOUT_S - trio.current_time()
        frame = await self._respond_to(in_flight.unsent, max(timeout_s, 0.0))
        return self._response(key, version, in_flight.correlation_id, frame)

    @property
    def repeating(self) -> tuple[Reactor, int] | None:
        """Return the loop that can repeat requests on this connection, and the descriptor. None with TLS."""
        if self._settings.reactor is None or self._received or not isinstance(self._stream, trio.SocketStream):
            return None
        return self._settings.reactor, self._stream.socket.fileno()

    def received(self, data: bytes) -> None:
        """Add bytes that were received outside of `send_request` and `finish`."""
        self._received += data

    def _response(self, key: int, version: int, correlation_id: int, frame: bytes) -> Any:
        correlation_id_received, response = self._decoded(key, version, frame)
        if correlation_id_received != correlation_id:
            raise RemoteProtocolError(
                f"{self.address} responded to request {correlation_id_received} instead of {correlation_id}"
            )
        return response

    def _decoded(self, key: int, version: int, frame: bytes) -> tuple[int, Any]:
        """Decode a response, unless it equals the last one: topics of 50 partitions are looked up every 10 s."""
        if key not in REPEATED or len(frame) > REPEATED_BYTES:
            return frames.decode_response(key, version, frame)
        last, content = self._last.get(key), frame[CORRELATION_ID_BYTES:]
        if last is not None and last[:2] == (version, content):
            return headers.correlation_id(frame), last[2]
        correlation_id, response = frames.decode_response(key, version, frame)
        self._last[key] = version, content, response
        return correlation_id, response

    def hand_over(self) -> trio.abc.Stream:
        """Return the stream, for a caller that pipelines requests.

        Raises RemoteProtocolError if the broker has sent more than responses.
        """
        if self._received:
            raise RemoteProtocolError(f"{self.address} sent {len(self._received)} bytes beyond its responses")
        return self._stream

    async def aclose(self) -> None:
        """Close, without waiting for the peer."""
        self.closed = True
        await trio.aclose_forcefully(self._stream)

    async def _respond_to(self, request: bytes, timeout_s: float) -> bytes:
        try:
            with trio.fail_after(timeout_s):
                if unsent := request[self._sent_now(request) :]:
                    await self._stream.send_all(unsent)
                return await self._frame()
        except trio.TooSlowError:
            raise UpstreamLost(f"{self.address} did not respond within {RESPONSE_TIMEOUT_S:g} s") from None
        except STREAM_ENDED as error:
            raise UpstreamLost(f"{self.address}: {reason_of(error)}") from None

    def _sent_now(self, request: bytes) -> int:
        """Send what the socket accepts, without the checkpoint of `send_all`. Return the number of bytes."""
        if not isinstance(self._stream, trio.SocketStream):
            return 0  # TLS
        try:
            return os.write(self._stream.socket.fileno(), request)
        except BlockingIOError:
            return 0

    def common_version(self, key: int) -> int:
        ours, theirs = registry.versions(key), self.versions.ranges.get(key)
        if theirs is None or max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
            raise RemoteProtocolError(f"{self.address} has no version of {registry.API_KEYS[key]} that is known here")
        return min(ours[1], theirs[1])

    async def _frame(self) -> bytes:
        """Return the next frame. If this is cancelled, nothing that was received is lost."""
        await self._receive(4)
        head = bytes(self._received[:4])
        size = int.from_bytes(head, "big", signed=True)
        if not frame_sizes.RESPONSE_MIN <= size <= self._settings.response_bytes:
            error = frame_sizes.wrong_size(size, self._settings.response_bytes, frame_sizes.RESPONSE_MIN)
            advice = f"; see {self._settings.tls_setting}" if frame_sizes.hint(head).startswith("a TLS") else ""
            raise RemoteProtocolError(f"{self.address} sent: {error}{advice}")
        await self._receive(4 + size)
        frame = bytes(memoryview(self._received)[4 : 4 + size])
        del self._received[: 4 + size]
        return frame

    async def _receive(self, size: int) -> None:
        while len(self._received) < size:
            chunk = await self._stream.receive_some(READ_BYTES)
            if not chunk:
                raise UpstreamLost(f"{self.address} closed the connection")
            self._received += chunk


@asynccontextmanager
async def connection(address: Address, settings: ClusterClientSettings) -> AsyncIterator[ClusterConnection]:
    opened = await open_connection(address, settings)
    try:
        yield opened
    finally:
        await opened.aclose()


async def open_connection(address: Address, settings: ClusterClientSettings) -> ClusterConnection:
    """Raises UpstreamLost if the broker cannot be reached, AuthenticationFailed if it refuses the identity,
    RemoteProtocolError if it does not speak Kafka.
    """
    opened = ClusterConnection(address, await _dial(address, settings), settings)
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


async def _dial(address: Address, settings: ClusterClientSettings) -> trio.abc.Stream:
    try:
        with trio.fail_after(settings.dial_timeout_s):
            stream = await settings.connect(address.host, address.port)
            if settings.tls is None:
                return stream
            name = settings.server_name or address.host
            secured = trio.SSLStream(stream, settings.tls.current, server_hostname=name, https_compatible=True)
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
        raise UpstreamLost(f"{address}: no connection within {settings.dial_timeout_s:g} s") from None
    except STREAM_ENDED as error:
        raise UpstreamLost(f"{address}: {reason_of(error)}") from None


async def _first_response(opened: ClusterConnection, settings: ClusterClientSettings) -> BrokerVersions:
    try:
        response = await _send_all(opened, broker_versions.negotiation(opened.address, CLIENT_ID))
    except UpstreamLost as error:
        if settings.tls is not None:
            raise
        raise UpstreamLost(f"{error} (as a TLS listener does: see {settings.tls_setting})") from None
    return BrokerVersions(ranges=broker_versions.version_ranges(response), response=response)


async def _send_all(opened: ClusterConnection, requests: Generator[sasl.Query, Any, T]) -> T:
    """Send the requests of a generator, and each response into it. Return its result."""
    response = None
    try:
        while True:
            key, version, request = requests.send(response)
            response = await opened.send_request(key, request, version)
    except StopIteration as ended:
        result: T = ended.value
        return result


async def mechanisms(opened: ClusterConnection, mechanism: str = "PLAIN") -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener. Empty if it does not authenticate.

    The connection must not be authenticated, and is unusable afterwards.
    """
    request = messages.SaslHandshakeRequest(mechanism=mechanism)
    response = await opened.send_request(ApiKey.SASL_HANDSHAKE, request, version=sasl.HANDSHAKE_VERSION)
    return () if response.error_code == ErrorCode.ILLEGAL_SASL_STATE else tuple(response.mechanisms or ())


async def _authenticate(opened: ClusterConnection, identity: Identity, *, is_required: bool) -> None:
    secret = await identity.secret()
    requests = sasl.authentication(identity.mechanism, identity.username, secret, is_required=is_required)
    try:
        opened.expires = session_ends(await _send_all(opened, requests))
    except sasl.LoginFailed as error:
        raise AuthenticationFailed(f"{opened.address} {error}") from None


def session_ends(lifetime_ms: int) -> float:
    """Return when (trio.current_time) to renew a session that begins now. inf if it has no lifetime."""
    return trio.current_time() + SESSION_SHARE * lifetime_ms / 1000 if lifetime_ms > 0 else inf


def reason_of(error: BaseException) -> str:
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
"""Reasons of OpenSSL when a peer does not speak TLS."""


def handshake_failure(error: BaseException, tls_setting: str) -> str:
    """Return why a TLS handshake failed, with the setting to check."""
    while isinstance(error, trio.BrokenResourceError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ssl.SSLCertVerificationError):
        return reason_of(error)
    if isinstance(error, ConnectionError) or getattr(error, "reason", None) in _NOT_TLS:
        return f"the TLS handshake failed: this looks like a listener without TLS (see {tls_setting})"
    return f"the TLS handshake failed: {reason_of(error).removeprefix('TLS: ')} (see {tls_setting})"


def _inner(error: BaseException) -> Sequence[BaseException]:
    """Return the errors of all addresses, since Trio tries each."""
    return error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
