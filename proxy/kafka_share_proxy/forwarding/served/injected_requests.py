"""The proxy's own requests on a client's upstream connection, as the client's principal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.forwarding.dispatch.response_dispatch import OwnResponse
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.wire.codec.headers import RequestHeader, encode_request_header
from kafka_share_proxy.wire.errors import UpstreamLost

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

Query = tuple[int, int, bytes]
"""API key, version and body of a request."""

KEEP_ALIVE_S = 180.0
"""Minimum time between keep-alive requests on an upstream connection (forwarding/README.md rule 36)."""

CORRELATION_IDS = 1 << 31
"""Correlation ids are non-negative and wrap to 0. They may equal ids of the client: responses are matched by order."""


class InjectedRequests:
    """Requests of the proxy on one connection. Created at the first local request."""

    __slots__ = ("_connection", "_last_id", "_sent_at", "_waiting", "in_flight")

    def __init__(self, connection: ForwardedConnection) -> None:
        self._connection = connection
        self._waiting: list[tuple[int, OwnResponse, bytes]] = []
        self._last_id = 0
        self._sent_at = connection.plane.reactor.now()
        self.in_flight = 0
        """Number of the proxy's entries in the pending queue."""

    @property
    def are_held(self) -> bool:
        """True if some requests wait until the client's current request is forwarded completely."""
        return bool(self._waiting)

    def send_request(self, key: int, version: int, body: bytes, client_id: str | None) -> Promise[memoryview]:
        expected = OwnResponse(key, version)
        self._last_id = (self._last_id + 1) % CORRELATION_IDS
        head = encode_request_header(RequestHeader(key, version, self._last_id, client_id))
        size = len(head) + len(body)
        self._waiting.append((self._last_id, expected, size.to_bytes(4, "big") + head + body))
        self._sent_at = self._connection.plane.reactor.now()
        return expected.promise

    def send(self) -> None:
        """Send the waiting requests, if the client's stream is at a frame boundary."""
        connection = self._connection
        if connection.requests.missing or connection.state.now is ClientState.HANDSHAKING:
            return
        waiting, self._waiting = self._waiting, []
        for correlation_id, expected, frame in waiting:
            connection.pending.append((correlation_id, expected))
            self.in_flight += 1
            connection.upstream.send(frame)

    def lost(self, gathered_for: object) -> list[Promise[memoryview]]:
        """Return the unresolved promises at the end of the connection. `gathered_for`: owner of a partial response."""
        waiting, self._waiting = self._waiting, []
        in_flight = [expected for _, expected in self._connection.pending if isinstance(expected, OwnResponse)]
        if isinstance(gathered_for, OwnResponse):
            in_flight.append(gathered_for)
        return [expected.promise for expected in (*in_flight, *(entry[1] for entry in waiting))]

    def keep_alive(self, now: float) -> None:
        """Send the keep-alive request after a while without requests, unless the broker would disconnect."""
        connection = self._connection
        if now - self._sent_at < KEEP_ALIVE_S or not connection.may_send_request(now):
            return
        query = connection.plane.keep_alive(connection)
        if query is not None:
            connection.send_request(*query)


async def introduced(connection: ForwardedConnection) -> None:
    """Wait until the broker has responded to a request that it serves for known clients only (after SASL).

    The request is sent once per connection. Raises UpstreamLost if the broker does not know the client.
    """
    query = connection.plane.introduction
    if query is not None and not connection.is_known:
        await connection.send_request(*query)


def failed() -> Promise[memoryview]:
    """Return a promise that failed because its connection ended."""
    promise: Promise[memoryview] = Promise()
    promise.fail(lost())
    return promise


def lost() -> UpstreamLost:
    return UpstreamLost("the connection ended before the response arrived")
