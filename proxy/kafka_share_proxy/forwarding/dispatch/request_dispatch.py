"""Treatment of requests that are not forwarded unchanged: the frames at which the walk over a client's bytes stops.

Functions receive the connection and the position of the frame. They return the position where the walk continues, or
None if it stops: more bytes are needed, or nothing after this request may be inspected yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafka_share_proxy.forwarding import client_software, sasl_user
from kafka_share_proxy.forwarding.connection_state import HANDSHAKING, PASSING
from kafka_share_proxy.forwarding.dispatch.response_dispatch import SaslAuthenticateResponse, SaslHandshakeResponse
from kafka_share_proxy.forwarding.dispatch.routes import Kind, Route
from kafka_share_proxy.forwarding.walk.broker_responses import TOKEN
from kafka_share_proxy.forwarding.walk.client_requests import RequestHead
from kafka_share_proxy.forwarding.walk.walk import Expected
from kafka_share_proxy.wire.codec import prefixes
from kafka_share_proxy.wire.codec.frame_sizes import SIZE
from kafka_share_proxy.wire.codec.prefixes import FieldOf
from kafka_share_proxy.wire.definitions.api_key import ApiKey
from kafka_share_proxy.wire.errors import RequestRefused

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection


_REFUSED, _LOCAL = Kind.REFUSE, Kind.LOCAL
_AUTHENTICATES = (Kind.SASL_HANDSHAKE, Kind.SASL_AUTHENTICATE)
_GATHERED = (Kind.LOCAL, Kind.INSPECT, Kind.PRODUCE)
"""Kinds as constants for each request, as in `connection_state`."""


class GatheredRequest(NamedTuple):
    """Head and route of a request that is gathered."""

    route: Route
    head: RequestHead


def treat(connection: ForwardedConnection, buffer: memoryview, at: int, end: int) -> int | None:
    """Treat the frame at `at` by its route. Raises RemoteProtocolError if it is not a request, or a refused one."""
    head = connection.requests.peek(buffer, at, end)
    if head is None:
        return None
    if connection.requests.raw and not _ends_tokens(connection, head):
        return _pass(connection, buffer, at, end, head, TOKEN)
    route = connection.plane.routes[head.name]
    if route.kind is _REFUSED:
        raise RequestRefused(route.reason)
    if route.kind in _AUTHENTICATES:
        return _sasl(connection, buffer, at, end, head, route)
    connection.sasl.ordinary_request()
    if route.kind in _GATHERED or route.amend is not None:
        return _gather(connection, buffer, at, end, GatheredRequest(route, head))
    if route.key == ApiKey.API_VERSIONS and end - at >= head.size + SIZE.size:
        connection.note_software(client_software.read(buffer[at + SIZE.size : at + SIZE.size + head.size]))
    return _pass(connection, buffer, at, end, head, route)


def gathered(connection: ForwardedConnection, request: GatheredRequest, frame: memoryview) -> None:
    """Serve a gathered request here, or forward it. `frame` includes its size, is writable and not shared."""
    route = request.route
    connection.plane.reactor.iterations.doing = connection, route
    if route.kind is _LOCAL:
        connection.serve(request, frame)
    elif route.serve_here is not None and route.serve_here(frame[4:]):
        _limit(connection, request, "served_request_bytes")
        connection.serve(request, frame)
    else:
        connection.state.move(PASSING)
        pass_whole(connection, request, frame)


def pass_whole(connection: ForwardedConnection, request: GatheredRequest, frame: memoryview) -> None:
    """Forward a gathered request, amended if its route requires it."""
    route = request.route
    treatment = None if route.amend is None else route.amend(frame[4:])
    if not (route.kind is Kind.PRODUCE and _expects_no_response(route, frame)):
        connection.pending.append((request.head.correlation_id, treatment or route))
    connection.requests.write(frame)


def _expects_no_response(route: Route, frame: memoryview) -> bool:
    acks = prefixes.of_request(route.key, route.version, FieldOf("Acks"))(frame[4:], len(frame) - 4)
    return bool(acks == 0)


def _ends_tokens(connection: ForwardedConnection, head: RequestHead) -> bool:
    """Return True if a frame among raw SASL tokens is a request: its first four bytes name a listed API version.

    No token begins with such bytes: PLAIN has a NUL and a user name there, SCRAM and OAUTHBEARER have text, GSSAPI
    tokens begin with 0x60 or 0x05. Tokens without a response are removed from the queue.
    """
    if head.name not in connection.plane.routes:
        return False
    connection.requests.raw = False
    connection.requests.go_by(connection.passing)
    pending = connection.pending
    while pending and pending[-1][1] is TOKEN:
        pending.pop()
    return True


def _pass(
    connection: ForwardedConnection, buffer: memoryview, at: int, end: int, head: RequestHead, expected: Expected
) -> int:
    connection.pending.append((head.correlation_id, expected))
    upto = connection.requests.admit(head.size, at, end)
    connection.requests.write(buffer[at:upto])
    return upto


def _sasl(
    connection: ForwardedConnection, buffer: memoryview, at: int, end: int, head: RequestHead, route: Route
) -> int | None:
    if route.kind is Kind.SASL_AUTHENTICATE:
        if end - at >= head.size + SIZE.size:
            connection.sasl.claims(sasl_user.read(buffer[at + SIZE.size : at + SIZE.size + head.size]))
        sent_at = connection.plane.reactor.now()
        return _pass(connection, buffer, at, end, head, SaslAuthenticateResponse(route.version, sent_at))
    if route.version == 0 and end - at < head.size + 4:
        return None  # wait for the whole small request, because what follows depends on its response
    connection.sasl_handshake_sent(route.version)
    upto = _pass(connection, buffer, at, end, head, SaslHandshakeResponse(route.version))
    if route.version == 0:
        connection.state.move(HANDSHAKING)
    return upto


def _gather(
    connection: ForwardedConnection, buffer: memoryview, at: int, end: int, request: GatheredRequest
) -> int | None:
    _limit(connection, request, _LARGEST.get(request.route.kind, "inspected_request_bytes"))
    if request.head.size > connection.plane.limits.unauthenticated_request_bytes and not connection.is_known:
        connection.requests.introduce()
        return None
    return connection.requests.gather(request.head.size, request, buffer, at, end)


_LARGEST = {Kind.LOCAL: "served_request_bytes", Kind.PRODUCE: "collected_bytes"}


def _limit(connection: ForwardedConnection, request: GatheredRequest, name: str) -> None:
    """Raise RequestRefused if the request is larger than this limit."""
    size, limit = request.head.size, getattr(connection.plane.limits, name)
    if size > limit:
        raise RequestRefused(
            f"request {request.route.key} v{request.route.version} of {size} bytes is larger than "
            f"limits.{name} ({limit})"
        )
