"""The proxy's own requests on a client's upstream connection, as the client's principal."""

from __future__ import annotations

from typing import Protocol

from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.forwarding.connection_parts import PartOwner, SharedByConnections
from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.forwarding.dispatch.response_dispatch import OwnResponse
from kafka_share_proxy.forwarding.walk.walking import Pending, RequestWalk
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.transports import Data
from kafka_share_proxy.wire.codec.headers import RequestHeader, encode_request_header
from kafka_share_proxy.wire.errors import UpstreamLost

KEEP_ALIVE_S = 180.0
"""Minimum time between two requests of the proxy that only keep the upstream connection alive (forwarding/README.md
rule 36).
"""

CORRELATION_IDS = 1 << 31
"""Number of correlation ids. Those of the proxy are non-negative and wrap to 0.

They may equal ids of the client, because responses are matched by order.
"""


class SendsRequests(Protocol):
    """Connection whose client may not be known to its broker yet."""

    is_known: bool
    """True once the broker has responded to a request that it serves for known clients only."""

    @property
    def plane(self) -> SharedByConnections:
        """State that all connections share."""

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """See brokers.interfaces.Connection."""


class TakesInjected(PartOwner, Connection, Protocol):
    """Connection on which the proxy sends its own requests."""

    @property
    def pending(self) -> Pending:
        """Requests that wait for a response."""

    @property
    def requests(self) -> RequestWalk:
        """Client's requests. `left`: missing bytes of the request that is being forwarded."""

    def to_broker(self, data: Data) -> None:
        """Send to the broker, or keep the bytes until a connection accepts them."""

    def may_send_request(self, now: float) -> bool:
        """Return True if a request of the proxy can be sent now and the broker would process it."""


class InjectedRequests:
    """Requests of the proxy on one connection. Created at the first local request."""

    __slots__ = ("_asked_at", "_connection", "_held", "_last_id", "in_flight")

    def __init__(self, connection: TakesInjected) -> None:
        self._connection = connection
        self._held: list[tuple[int, OwnResponse, bytes]] = []
        self._last_id = 0
        self._asked_at = connection.plane.reactor.now()
        self.in_flight = 0
        """Number of entries in the pending queue that belong to the proxy."""

    @property
    def are_held(self) -> bool:
        """True if some requests wait until the client's current request is forwarded completely."""
        return bool(self._held)

    def send_request(self, key: int, version: int, body: bytes, client_id: str | None) -> Promise[memoryview]:
        expected = OwnResponse(key, version)
        self._last_id = (self._last_id + 1) % CORRELATION_IDS
        head = encode_request_header(RequestHeader(key, version, self._last_id, client_id))
        size = len(head) + len(body)
        self._held.append((self._last_id, expected, size.to_bytes(4, "big") + head + body))
        self._asked_at = self._connection.plane.reactor.now()
        return expected.promise

    def send(self) -> None:
        """Send the held requests, if the client's stream is at a frame boundary."""
        connection = self._connection
        if connection.requests.left or connection.state.now is ClientState.HANDSHAKING:
            return
        held, self._held = self._held, []
        for correlation_id, expected, frame in held:
            connection.pending.append((correlation_id, expected))
            self.in_flight += 1
            connection.to_broker(frame)

    def lost(self, gathered_for: object) -> list[Promise[memoryview]]:
        """Return the unresolved promises at the end of the connection. `gathered_for`: owner of a partial response."""
        held, self._held = self._held, []
        in_flight = [expected for _, expected in self._connection.pending if isinstance(expected, OwnResponse)]
        if isinstance(gathered_for, OwnResponse):
            in_flight.append(gathered_for)
        return [expected.promise for expected in (*in_flight, *(entry[1] for entry in held))]

    def keep_alive(self, now: float) -> None:
        """Send the keep-alive request after a while without requests, unless the broker would disconnect."""
        connection = self._connection
        if now - self._asked_at < KEEP_ALIVE_S or not connection.may_send_request(now):
            return
        query = connection.plane.keep_alive(connection)
        if query is not None:
            connection.send_request(*query)


async def introduced(connection: SendsRequests) -> None:
    """Wait until the broker has responded to a request that it serves for known clients only (after SASL).

    The request is sent once per connection. A broker that does not know the client ends the connection instead.

    Raises:
        UpstreamLost: the broker ended the connection.
    """
    query = connection.plane.introduction
    if query is not None and not connection.is_known:
        await connection.send_request(*query)


def failed() -> Promise[memoryview]:
    """Return a promise that has failed because its connection ended."""
    promise: Promise[memoryview] = Promise()
    promise.fail(lost())
    return promise


def lost() -> UpstreamLost:
    """Return the error of promises whose connection ended."""
    return UpstreamLost("the connection ended before the answer came")
