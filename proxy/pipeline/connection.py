"""One blocking connection to one broker or proxy, on the codec that the proxy uses (pipeline/README.md rules 5 to 7).

No thread, socket or loop exists when this is imported: executors fork their workers. Sources: KIP-35 (ApiVersions),
KIP-43 and KIP-152 (SASL), RFC 4616 (PLAIN), RFC 5802 (SCRAM).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from proxy.pipeline.options import Security
from proxy.wire import frame_sizes, frames, messages, registry, sasl
from proxy.wire.api_key import ApiKey
from proxy.wire.errors import ErrorCode, ProxyError, RemoteProtocolError, UpstreamLost, error_name
from proxy.wire.messages import Message, RequestMessage
from proxy.wire.values import MIB, Address

R = TypeVar("R", bound=Message)

DIAL_S = 10.0
"""For one attempt, TLS included."""
ANSWER_S = 40.0
"""A call that takes longer has failed; a Fetch waits half a second at most, a proxy may have to hash first."""
ANSWER_BYTES_MAX = 100 * MIB
"""Largest answer that is believed; one record batch may be larger than what was asked for."""
API_VERSIONS_VERSION = 3
CORRELATION_IDS = 1 << 31


class LoginRefused(ProxyError):
    """The server does not accept the identity: no attempt will help."""


class BlockingConnection:
    """Requests and answers in order; several requests may be under way. Not for several threads."""

    def __init__(self, address: Address, security: Security, client_id: str, answer_s: float = ANSWER_S) -> None:
        """Dial, learn the versions, authenticate.

        Raises:
            UpstreamLost: nobody answers there. LoginRefused. RemoteProtocolError: no Kafka is there.
        """
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> (lowest, highest) version of the server."""
        self._client_id = client_id
        self._answer_s = answer_s
        self._numbers = count(1)
        self._asked: list[tuple[int, int, int]] = []
        self._socket = _lost(address, lambda: _dialled(address, security))
        try:
            self._socket.settimeout(answer_s)
            self._learn_versions()
            if security.mechanism:
                self._authenticate(security)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Harmless twice."""
        with suppress(OSError):
            self._socket.close()

    @property
    def is_asked(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._asked)

    def version(self, key: int, most: int) -> int:
        """The highest version that both sides and the caller know. Raises RemoteProtocolError: there is none."""
        ours, theirs = registry.versions(key), self.versions.get(key, (0, -1))
        chosen = min(ours[1], theirs[1], most)
        if chosen < max(ours[0], theirs[0]):
            raise RemoteProtocolError(f"{self.address} has no version of {registry.API_KEYS[key]} that is known here")
        return chosen

    def ask(self, key: int, message: RequestMessage[R], version: int) -> R:
        """One request and its answer; nothing else may be under way. Raises as `send` and `receive`."""
        self.send(key, message, version)
        answer: R = self.receive()
        return answer

    def send(self, key: int, message: RequestMessage[Any], version: int) -> None:
        """Send a request; its answer is taken by `receive`. Raises UpstreamLost."""
        number = next(self._numbers) % CORRELATION_IDS
        data = frames.request(key, version, number, self._client_id, message)
        _lost(self.address, lambda: self._socket.sendall(data))
        self._asked.append((key, version, number))

    def receive(self) -> Any:
        """The answer to the oldest request. Raises UpstreamLost, RemoteProtocolError; the connection is over then."""
        key, version, number = self._asked.pop(0)
        frame = self._frame()
        if key == ApiKey.API_VERSIONS and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # KIP-511: answered in the oldest
        answered, answer = frames.decode_response(key, version, frame)
        if answered != number:
            raise RemoteProtocolError(f"{self.address} answered request {answered}, {number} was asked")
        return answer

    def _frame(self) -> bytes | memoryview:
        head = self._exactly(4)
        size = int.from_bytes(head, "big", signed=True)
        if not frame_sizes.ANSWER_MIN <= size <= ANSWER_BYTES_MAX:
            error = frame_sizes.wrong_size(size, ANSWER_BYTES_MAX, frame_sizes.ANSWER_MIN)
            raise RemoteProtocolError(f"{self.address} sent: {error}; does it want tls=true?")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        room = bytearray(size)
        view = memoryview(room)
        filled = 0
        while filled < size:
            received = _lost(self.address, lambda: self._socket.recv_into(view[filled:]))  # noqa: B023 - called at once
            if not received:
                raise UpstreamLost(f"{self.address} closed the connection")
            filled += received
        return view.toreadonly()

    # Setting up

    def _learn_versions(self) -> None:
        request = messages.ApiVersionsRequest(client_software_name=self._client_id, client_software_version="1")
        answer = self.ask(ApiKey.API_VERSIONS, request, API_VERSIONS_VERSION)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.ask(ApiKey.API_VERSIONS, messages.ApiVersionsRequest(), 0)
        if answer.error_code != ErrorCode.NONE:
            raise RemoteProtocolError(f"{self.address} answered ApiVersions with {error_name(answer.error_code)}")
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys or ()}

    def _authenticate(self, security: Security) -> None:
        asking = sasl.authentication(security.mechanism, security.username, partial(_password, security))
        answer = None
        try:
            while True:
                key, question = asking.send(answer)
                is_handshake = key == ApiKey.SASL_HANDSHAKE
                answer = self.ask(key, question, sasl.HANDSHAKE_VERSION if is_handshake else self.version(key, 2))
        except StopIteration:
            return
        except sasl.LoginFailed as error:
            raise LoginRefused(f"{self.address} {error}") from None


T = TypeVar("T")


def _lost(address: Address, work: Callable[[], T]) -> T:
    """What the work gives; errors of the network become UpstreamLost."""
    try:
        return work()
    except ssl.SSLCertVerificationError as error:
        raise UpstreamLost(f"{address}: the certificate is not accepted: {error.verify_message}") from None
    except TimeoutError:
        raise UpstreamLost(f"{address} did not answer in time") from None
    except OSError as error:
        raise UpstreamLost(f"{address}: {error.strerror or error}") from None


def _dialled(address: Address, security: Security) -> socket.socket:
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
