"""A blocking connection to a broker or proxy, with the codec of the proxy (pipeline/README.md rules 5 to 7).

Importing this creates no thread, socket or loop, because executors fork their workers. Sources: KIP-35 (ApiVersions),
KIP-43 and KIP-152 (SASL), RFC 4616 (PLAIN), RFC 5802 (SCRAM).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from kafka_share_proxy.pipeline.source.options import Security
from kafka_share_proxy.wire import broker_versions, sasl
from kafka_share_proxy.wire.codec import frame_sizes, frames
from kafka_share_proxy.wire.definitions import registry
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.definitions.messages import Message, RequestMessage
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from kafka_share_proxy.wire.values import MIB, Address

R = TypeVar("R", bound=Message)
T = TypeVar("T")

DIAL_S = 10.0
RESPONSE_S = 40.0
"""Timeout of a response. A Fetch waits half a second at most, but a proxy may have to hash first."""
RESPONSE_BYTES_MAX = 100 * MIB
"""Maximum size of a response. A single record batch may be larger than the size in the request."""
CORRELATION_IDS = 1 << 31


class LoginRefused(ProxyError):
    """The server rejected the login. A retry does not help."""


class BlockingConnection:
    """Connection on which several requests may be in flight. Not thread-safe."""

    def __init__(self, address: Address, security: Security, client_id: str, response_s: float = RESPONSE_S) -> None:
        """Connect, negotiate versions and authenticate. Raises UpstreamLost, LoginRefused, RemoteProtocolError."""
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> (lowest, highest)."""
        self._client_id = client_id
        self._correlation_ids = count(1)
        self._in_flight: list[tuple[int, int, int]] = []
        self._socket = _call_socket(address, lambda: _dial(address, security))
        try:
            self._socket.settimeout(response_s)
            self._negotiate_and_log_in(security)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    @property
    def has_requests_in_flight(self) -> bool:
        """True if a request has no response yet."""
        return bool(self._in_flight)

    def version(self, key: int, version_max: int) -> int:
        """Return the highest common version.

        Raises RemoteProtocolError if there is none.
        """
        ours, theirs = registry.versions(key), self.versions.get(key, (0, -1))
        chosen = min(ours[1], theirs[1], version_max)
        if chosen < max(ours[0], theirs[0]):
            raise RemoteProtocolError(f"{self.address} has no version of {registry.API_KEYS[key]} that is known here")
        return chosen

    def send_request(self, key: int, message: RequestMessage[R], version: int) -> R:
        """Send a request. No other request may be in flight."""
        self.send(key, message, version)
        response: R = self.receive()
        return response

    def send(self, key: int, message: RequestMessage[Any], version: int) -> None:
        """Send a request. Raises UpstreamLost."""
        correlation_id = next(self._correlation_ids) % CORRELATION_IDS
        data = frames.request(key, version, correlation_id, self._client_id, message)
        _call_socket(self.address, lambda: self._socket.sendall(data))
        self._in_flight.append((key, version, correlation_id))

    def receive(self) -> Any:
        """Return the next response. If this raises, the caller must close the connection."""
        key, version, correlation_id = self._in_flight.pop(0)
        frame = self._read_frame()
        if key == ApiKey.API_VERSIONS and broker_versions.is_unsupported_version(frame):
            version = 0
        received_id, response = frames.decode_response(key, version, frame)
        if received_id != correlation_id:
            raise RemoteProtocolError(
                f"{self.address} received_id to request {received_id} instead of {correlation_id}"
            )
        return response

    def _read_frame(self) -> bytes | memoryview:
        head = self._read_exactly(4)
        size = int.from_bytes(head, "big", signed=True)
        if not frame_sizes.RESPONSE_MIN <= size <= RESPONSE_BYTES_MAX:
            error = frame_sizes.wrong_size(size, RESPONSE_BYTES_MAX, frame_sizes.RESPONSE_MIN)
            raise RemoteProtocolError(f"{self.address} sent: {error}; does it want tls=true?")
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> memoryview:
        room = bytearray(size)
        view = memoryview(room)
        filled = 0
        while filled < size:
            received = _call_socket(self.address, lambda: self._socket.recv_into(view[filled:]))  # noqa: B023 - called immediately
            if not received:
                raise UpstreamLost(f"{self.address} closed the connection")
            filled += received
        return view.toreadonly()

    # Setting up

    def _negotiate_and_log_in(self, security: Security) -> None:
        negotiated = self._run_exchange(broker_versions.negotiation(self.address, self._client_id))
        self.versions = broker_versions.version_ranges(negotiated)
        if not security.mechanism:
            return
        try:
            self._run_exchange(sasl.authentication(security.mechanism, security.username, partial(_password, security)))
        except sasl.LoginFailed as error:
            raise LoginRefused(f"{self.address} {error}") from None

    def _run_exchange(self, requests: Generator[sasl.Query, Any, T]) -> T:
        """Send each response into the generator. Return its result."""
        response = None
        try:
            while True:
                key, version, request = requests.send(response)
                response = self.send_request(key, request, self.version(key, 2) if version is None else version)
        except StopIteration as ended:
            result: T = ended.value
            return result


def _call_socket(address: Address, work: Callable[[], T]) -> T:
    """Call a function. Its OSError is raised as UpstreamLost."""
    try:
        return work()
    except ssl.SSLCertVerificationError as error:
        raise UpstreamLost(f"{address}: the certificate is not accepted: {error.verify_message}") from None
    except TimeoutError:
        raise UpstreamLost(f"{address} did not respond in time") from None
    except OSError as error:
        raise UpstreamLost(f"{address}: {error.strerror or error}") from None


def _dial(address: Address, security: Security) -> socket.socket:
    context = _context(security) if security.tls else None
    plain = socket.create_connection((address.host, address.port), DIAL_S)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return plain
        return context.wrap_socket(plain, server_hostname=security.server_name or address.host)
    except BaseException:
        plain.close()
        raise


def _context(security: Security) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=security.ca or None)
    if security.cert:
        context.load_cert_chain(security.cert, security.key or None)
    return context


def _password(security: Security) -> str:
    if not security.password_file:
        return security.password
    try:
        return Path(security.password_file).read_text().rstrip("\n")
    except OSError as error:
        raise LoginRefused(f"sasl.passwordFile={security.password_file!r}: {error.strerror}") from None
