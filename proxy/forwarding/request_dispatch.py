"""Requests that do not simply pass: what becomes of the frame at which the walk over a client's bytes stopped.

Every function gets the connection and where the frame stands, and returns where the walk goes on, or None when it
stops: more bytes are needed, or nothing behind this request may be looked at yet.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from proxy.forwarding.answer_dispatch import SaslAuthenticateAnswer, SaslHandshakeAnswer
from proxy.forwarding.broker_answers import TOKEN
from proxy.forwarding.client_requests import Passing, RequestHead
from proxy.forwarding.connection_parts import PartOwner
from proxy.forwarding.connection_state import ClientState
from proxy.forwarding.routes import Kind, Route
from proxy.forwarding.sasl import Sasl
from proxy.forwarding.walk import Expected
from proxy.forwarding.walking import Pending
from proxy.loop.transports import Data
from proxy.wire import prefixes
from proxy.wire.errors import RequestRefused
from proxy.wire.prefixes import FieldOf


class GatheredRequest(NamedTuple):
    """A request that is gathered: what it is and how it is treated."""

    route: Route
    head: RequestHead


class RequestStream(Protocol):
    """The client's requests on their way to the broker."""

    raw: bool
    """SASL tokens without Kafka headers may come (handshake v0)."""

    def peek(self, buffer: memoryview, at: int, end: int) -> RequestHead | None:
        """What stands at `at`; None when more bytes are needed to say so."""

    def go_by(self, passing: Passing) -> None:
        """Which requests pass, from the next one on."""

    def admit(self, size: int, at: int, end: int) -> int:
        """Let the request at `at` pass; up to where its bytes have come."""

    def write(self, data: Data) -> None:
        """Pass on to the broker."""

    def gather(self, size: int, asked: GatheredRequest, at: int, end: int) -> int:
        """Collect the request at `at`; where the rest begins."""

    def introduce(self) -> None:
        """Go on when the broker knows the client."""


class Forwards(Protocol):
    """The connection whose requests are forwarded."""

    @property
    def requests(self) -> RequestStream:
        """What is read from the client."""

    @property
    def pending(self) -> Pending:
        """Requests that wait for their answer."""


class TakesRequests(PartOwner, Forwards, Protocol):
    """The connection whose request is dispatched."""

    is_known: bool
    """Whether the broker has answered a request that it answers to clients it knows only."""

    @property
    def sasl(self) -> Sasl:
        """How far the client has come with SASL."""

    def serve(self, asked: GatheredRequest, frame: memoryview) -> None:
        """Mute the client until this request is answered here."""

    def sasl_handshake_sent(self, version: int) -> None:
        """The client begins an exchange."""


def treat(connection: TakesRequests, buffer: memoryview, at: int, end: int) -> int | None:
    """Decide on the frame at `at`.

    Raises:
        RemoteProtocolError: it is no request, or one that is refused.
    """
    head = connection.requests.peek(buffer, at, end)
    if head is None:
        return None
    if connection.requests.raw and not _ends_tokens(connection, head):
        return _pass(connection, buffer, at, end, head, TOKEN)
    route = connection.plane.routes[head.name]
    if route.kind is Kind.REFUSE:
        raise RequestRefused(route.reason)
    if route.kind in (Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE):
        return _sasl(connection, buffer, at, end, head, route)
    connection.sasl.ordinary_request()
    if route.kind in (Kind.LOCAL, Kind.INSPECT, Kind.PRODUCE) or route.amend is not None:
        return _gather(connection, at, end, GatheredRequest(route, head))
    return _pass(connection, buffer, at, end, head, route)


def gathered(connection: TakesRequests, asked: GatheredRequest, frame: memoryview) -> None:
    """A request has come whole (`frame` with its size, writable, ours): serve it here or pass it on."""
    route = asked.route
    connection.plane.reactor.turns.doing = connection, route
    if route.kind is Kind.LOCAL or (route.serve_here is not None and route.serve_here(frame[4:])):
        _limit(connection, asked, "served_request_bytes")
        connection.serve(asked, frame)
    else:
        connection.state.move(ClientState.PASSING)
        pass_whole(connection, asked, frame)


def pass_whole(connection: Forwards, asked: GatheredRequest, frame: memoryview) -> None:
    """Forward a request that was gathered, amended where its route says so."""
    route = asked.route
    treatment = None if route.amend is None else route.amend(frame[4:])
    if not (route.kind is Kind.PRODUCE and _wants_no_answer(route, frame)):
        connection.pending.append((asked.head.correlation_id, treatment or route))
    connection.requests.write(frame)


def _wants_no_answer(route: Route, frame: memoryview) -> bool:
    acks = prefixes.of_request(route.key, route.version, FieldOf("Acks"))(frame[4:], len(frame) - 4)
    return bool(acks == 0)


def _ends_tokens(connection: TakesRequests, head: RequestHead) -> bool:
    """Whether a frame among raw SASL tokens is an ordinary request: its first four bytes name a listed API version.

    No token begins so: PLAIN has a NUL and a user name there (read as a version it is far above any), SCRAM and
    OAUTHBEARER have text, GSSAPI tokens begin with 0x60 or 0x05. Tokens a mechanism leaves unanswered are taken off.
    """
    if head.name not in connection.plane.routes:
        return False
    connection.requests.raw = False
    connection.requests.go_by(connection.plane.passing)
    pending = connection.pending
    while pending and pending[-1][1] is TOKEN:
        pending.pop()
    return True


def _pass(
    connection: TakesRequests, buffer: memoryview, at: int, end: int, head: RequestHead, expected: Expected
) -> int:
    connection.pending.append((head.correlation_id, expected))
    upto = connection.requests.admit(head.size, at, end)
    connection.requests.write(buffer[at:upto])
    return upto


def _sasl(
    connection: TakesRequests, buffer: memoryview, at: int, end: int, head: RequestHead, route: Route
) -> int | None:
    if route.kind is Kind.SASL_AUTHENTICATE:
        sent_at = connection.plane.reactor.now()
        return _pass(connection, buffer, at, end, head, SaslAuthenticateAnswer(route.version, sent_at))
    if route.version == 0 and end - at < head.size + 4:
        return None  # small, and what follows must wait for its answer: taken whole
    connection.sasl_handshake_sent(route.version)
    upto = _pass(connection, buffer, at, end, head, SaslHandshakeAnswer(route.version))
    if route.version == 0:
        connection.state.move(ClientState.HANDSHAKING)
    return upto


def _gather(connection: TakesRequests, at: int, end: int, asked: GatheredRequest) -> int | None:
    _limit(connection, asked, _LARGEST.get(asked.route.kind, "inspected_request_bytes"))
    if asked.head.size > connection.plane.limits.unauthenticated_request_bytes and not connection.is_known:
        connection.requests.introduce()
        return None
    return connection.requests.gather(asked.head.size, asked, at, end)


_LARGEST = {Kind.LOCAL: "served_request_bytes", Kind.PRODUCE: "collected_bytes"}
"""Kind -> the limit of a request that is gathered."""


def _limit(connection: TakesRequests, asked: GatheredRequest, name: str) -> None:
    """Raise RequestRefused where the request is larger than the limit of that name."""
    size, limit = asked.head.size, getattr(connection.plane.limits, name)
    if size > limit:
        raise RequestRefused(
            f"request {asked.route.key} v{asked.route.version} of {size} bytes is larger than limits.{name} ({limit})"
        )
