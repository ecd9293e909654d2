"""Deliver gathered responses: rewrite them, observe them, or hand them to the proxy's own requests.

The pending queue (`forwarding.walk.client_requests.Expected`) holds objects of these classes. `arrived` receives the
frame with its size and returns the bytes for the client, if any.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

from kafka_share_proxy.forwarding.dispatch.routes import Rewrite, Treatment
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.definitions.api_key import ApiKey

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection


class OwnResponse:
    """Response to a request of the proxy itself, never sent to the client."""

    __slots__ = ("key", "promise", "version")
    rewrite = True

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.promise: Promise[memoryview] = Promise()

    def arrived(self, connection: ForwardedConnection, frame: memoryview) -> None:
        """Settle the promise at the end of this loop iteration: the waiter may do anything, also to this connection."""
        if self.key != ApiKey.API_VERSIONS:  # brokers respond to ApiVersions for any client
            connection.is_known = True
        offset = headers.response_body_offset(self.key, self.version, frame[4:])
        body = frame[4 + offset :]
        if body.obj is connection.plane.reactor.buffer.obj:
            # the next loop iteration overwrites the shared buffer; a gathered frame is not shared
            body = memoryview(bytes(body))
        connection.call_soon(partial(connection.responded, self.promise, body))


class SaslHandshakeResponse:
    """Response that shows whether the broker accepted the mechanism. After v0, raw tokens follow."""

    __slots__ = ("version",)
    rewrite = True

    def __init__(self, version: int) -> None:
        self.version = version

    def arrived(self, connection: ForwardedConnection, frame: memoryview) -> memoryview:
        response: messages.SaslHandshakeResponse
        _, response = frames.decode_response(ApiKey.SASL_HANDSHAKE, self.version, frame[4:])
        connection.sasl_handshake_responded(self.version, response.error_code)
        return frame


class SaslAuthenticateResponse:
    """Response that shows the outcome of one authentication round and the session lifetime."""

    __slots__ = ("_sent_at", "version")
    rewrite = True

    def __init__(self, version: int, sent_at: float) -> None:
        self.version = version
        self._sent_at = sent_at

    def arrived(self, connection: ForwardedConnection, frame: memoryview) -> memoryview:
        response: messages.SaslAuthenticateResponse
        _, response = frames.decode_response(ApiKey.SASL_AUTHENTICATE, self.version, frame[4:])
        connection.sasl.authenticate_responded(response.error_code, response.session_lifetime_ms, self._sent_at)
        return frame


Special = OwnResponse | SaslHandshakeResponse | SaslAuthenticateResponse


class Rewrites(Treatment, Protocol):
    """Treatment that rewrites the response."""

    @property
    def rewrite(self) -> Rewrite: ...


class ResponseStream(Protocol):
    """Response that is forwarded while it arrives (rewriting/share_fetch_stream.py)."""

    @property
    def remaining(self) -> int:
        """Bytes of the response that `advance` has not passed."""

    def advance(self, data: memoryview) -> int:
        """Return how many bytes can be forwarded from the start of `data` on, where the last call stopped.

        They may be more than `data` has. 0: more bytes are needed first. Raises RemoteProtocolError.
        """


def begin_stream(expected: object, size: int) -> ResponseStream | None:
    """Return the stream of a response of `size` bytes. None if the response must be collected."""
    begin = getattr(getattr(expected, "rewrite", None), "begin", None)
    stream: ResponseStream | None = None if begin is None else begin(size)
    return stream


def deliver(connection: ForwardedConnection, expected: object, frame: memoryview) -> bytes | memoryview | None:
    """Return the bytes for the client, if any."""
    if isinstance(expected, ExpectedResponse):
        return frame if expected.on_response(bytes(frame)) else None
    if isinstance(expected, Special):
        return expected.arrived(connection, frame)
    assert is_treatment(expected)  # noqa: S101  # nothing else is ever queued
    connection.plane.reactor.iterations.doing = connection, expected
    return expected.rewrite(frame[4:], connection.context) or frame


def is_treatment(expected: object) -> TypeGuard[Rewrites]:
    """Return True if the response is rewritten. In other classes `rewrite` is not callable."""
    return callable(getattr(expected, "rewrite", None))
