"""Answers that do not simply pass: what a connection does with one once it has come whole.

An object of each class stands in the queue of pending answers (`forwarding.client_requests.Expected`). `arrived` gets
the frame with its size and says what the client is given: the frame, other bytes, or nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, TypeGuard

from proxy.forwarding.connection_parts import PartOwner
from proxy.forwarding.interfaces import AwaitedAnswer
from proxy.forwarding.routes import Context, Rewrite, Treatment
from proxy.loop.promise import Promise
from proxy.wire import frames, headers, messages
from proxy.wire.api_key import ApiKey


class TakesAnswers(PartOwner, Protocol):
    """The connection that an answer belongs to."""

    is_known: bool
    """Whether the broker has answered a request that it answers to clients it knows only."""

    @property
    def context(self) -> Context:
        """What a rewriter may know."""

    def answered(self, promise: Promise[memoryview], body: memoryview) -> None:
        """The broker answered a request of the proxy's own."""

    def sasl_handshake_answered(self, version: int, error_code: int) -> None:
        """The broker answered SaslHandshake."""

    def sasl_authenticate_answered(self, error_code: int, session_lifetime_ms: int, sent_at: float) -> None:
        """The broker answered SaslAuthenticate."""


class OwnAnswer:
    """To a request of the proxy's own: goes to whoever asked, never to the client."""

    __slots__ = ("key", "promise", "version")
    rewrite = True

    def __init__(self, key: int, version: int) -> None:
        self.key = key
        self.version = version
        self.promise: Promise[memoryview] = Promise()

    def arrived(self, connection: TakesAnswers, frame: memoryview) -> None:
        """Settle the promise at the end of this turn: the waiter may do anything, also to this connection."""
        if self.key != ApiKey.API_VERSIONS:  # which brokers answer to anybody
            connection.is_known = True
        offset = headers.response_body_offset(self.key, self.version, frame[4:])
        body = frame[4 + offset :]
        if body.obj is connection.plane.reactor.buffer.obj:
            body = memoryview(bytes(body))  # read over in the next turn; a gathered frame is nobody else's
        connection.call_soon(partial(connection.answered, self.promise, body))


class SaslHandshakeAnswer:
    """Tells whether the mechanism was taken; after v0, raw tokens follow."""

    __slots__ = ("version",)
    rewrite = True

    def __init__(self, version: int) -> None:
        self.version = version

    def arrived(self, connection: TakesAnswers, frame: memoryview) -> memoryview:
        """Note the outcome; the client gets the frame as it is."""
        answer: messages.SaslHandshakeResponse
        _, answer = frames.decode_response(ApiKey.SASL_HANDSHAKE, self.version, frame[4:])
        connection.sasl_handshake_answered(self.version, answer.error_code)
        return frame


class SaslAuthenticateAnswer:
    """Tells how one round ended, and how long the session lives."""

    __slots__ = ("_sent_at", "version")
    rewrite = True

    def __init__(self, version: int, sent_at: float) -> None:
        self.version = version
        self._sent_at = sent_at

    def arrived(self, connection: TakesAnswers, frame: memoryview) -> memoryview:
        """Note the outcome; the client gets the frame as it is."""
        answer: messages.SaslAuthenticateResponse
        _, answer = frames.decode_response(ApiKey.SASL_AUTHENTICATE, self.version, frame[4:])
        connection.sasl_authenticate_answered(answer.error_code, answer.session_lifetime_ms, self._sent_at)
        return frame


Special = OwnAnswer | SaslHandshakeAnswer | SaslAuthenticateAnswer


class Rewrites(Treatment, Protocol):
    """Rewrites the answer: what simply passes is not gathered."""

    @property
    def rewrite(self) -> Rewrite:
        """See Treatment."""


def deliver(connection: TakesAnswers, expected: object, frame: memoryview) -> bytes | memoryview | None:
    """What the client gets for an answer that was gathered: rewritten, as it is, or nothing."""
    if isinstance(expected, AwaitedAnswer):
        expected.came(frame)
        return None
    if isinstance(expected, Special):
        return expected.arrived(connection, frame)
    assert is_treatment(expected)  # noqa: S101  # nothing else is ever queued
    connection.plane.reactor.turns.doing = connection, expected
    return expected.rewrite(frame[4:], connection.context) or frame


def is_treatment(expected: object) -> TypeGuard[Rewrites]:
    """Whether the answer is rewritten: what others do with one is no function."""
    return callable(getattr(expected, "rewrite", None))
