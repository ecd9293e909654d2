"""The proxy's own requests on a client's upstream connection, as the client's principal (interfaces.Connection.ask)."""

from __future__ import annotations

from typing import Protocol

from proxy.brokers.interfaces import Connection
from proxy.forwarding.answer_dispatch import OwnAnswer
from proxy.forwarding.connection_parts import PartOwner, SharedByConnections
from proxy.forwarding.connection_state import ClientState
from proxy.forwarding.walking import Pending, RequestWalk
from proxy.loop.promise import Promise
from proxy.loop.transports import Data
from proxy.wire.errors import UpstreamLost
from proxy.wire.headers import RequestHeader, encode_request_header

KEEP_ALIVE_S = 180.0
"""Least time between two requests of the proxy's own that only keep the upstream connection alive
(forwarding/README.md rule 36)."""

CORRELATION_IDS = 1 << 31
"""Ours are non-negative and start again at 0; order decides, so they may repeat the client's."""


class Asks(Protocol):
    """A connection whose client its broker may not know yet."""

    is_known: bool
    """Whether the broker has answered a request that it answers to clients it knows only."""

    @property
    def plane(self) -> SharedByConnections:
        """What all connections share."""

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """See brokers.interfaces.Connection."""


class TakesInjected(PartOwner, Connection, Protocol):
    """The connection on which the proxy asks."""

    @property
    def pending(self) -> Pending:
        """Requests that wait for their answer."""

    @property
    def requests(self) -> RequestWalk:
        """The client's requests; `left`: bytes of one that is passing which are still to come."""

    def to_broker(self, data: Data) -> None:
        """Pass on, or keep until there is a connection that takes it."""

    def may_ask(self, now: float) -> bool:
        """Whether a request of ours can be sent now and would be judged."""


class InjectedRequests:
    """Those of one connection; made when the first local request comes."""

    __slots__ = ("_asked_at", "_connection", "_held", "_last_id", "unanswered")

    def __init__(self, connection: TakesInjected) -> None:
        self._connection = connection
        self._held: list[tuple[int, OwnAnswer, bytes]] = []
        self._last_id = 0
        self._asked_at = connection.plane.reactor.now()
        self.unanswered = 0
        """How many entries of the queue of pending answers are ours."""

    @property
    def are_held(self) -> bool:
        """Whether some wait for the end of a request that is passing."""
        return bool(self._held)

    def ask(self, key: int, version: int, body: bytes, client_id: str | None) -> Promise[memoryview]:
        """See interfaces.Connection."""
        expected = OwnAnswer(key, version)
        self._last_id = (self._last_id + 1) % CORRELATION_IDS
        head = encode_request_header(RequestHeader(key, version, self._last_id, client_id))
        size = len(head) + len(body)
        self._held.append((self._last_id, expected, size.to_bytes(4, "big") + head + body))
        self._asked_at = self._connection.plane.reactor.now()
        return expected.promise

    def send(self) -> None:
        """Send what is held, at a frame boundary."""
        connection = self._connection
        if connection.requests.left or connection.state.now is ClientState.HANDSHAKING:
            return
        held, self._held = self._held, []
        for correlation_id, expected, frame in held:
            connection.pending.append((correlation_id, expected))
            self.unanswered += 1
            connection.to_broker(frame)

    def lost(self, gathered_for: object) -> list[Promise[memoryview]]:
        """The connection ends: the promises nobody will keep. `gathered_for`: whose answer is being gathered."""
        held, self._held = self._held, []
        unanswered = [expected for _, expected in self._connection.pending if isinstance(expected, OwnAnswer)]
        if isinstance(gathered_for, OwnAnswer):
            unanswered.append(gathered_for)
        return [expected.promise for expected in (*unanswered, *(entry[1] for entry in held))]

    def keep_alive(self, now: float) -> None:
        """Ask something if nothing was asked for a while and it would be judged, not end the connection."""
        connection = self._connection
        if now - self._asked_at < KEEP_ALIVE_S or not connection.may_ask(now):
            return
        question = connection.plane.keep_alive(connection)
        if question is not None:
            connection.ask(*question)


async def introduced(connection: Asks) -> None:
    """Wait until the broker has answered a request that it answers to clients it knows only (after SASL).

    Asked once for each connection. A broker that does not know the client ends the connection instead.

    Raises:
        UpstreamLost: it has.
    """
    question = connection.plane.introduction
    if question is not None and not connection.is_known:
        await connection.ask(*question)


def lost() -> UpstreamLost:
    """What a promise fails with when its connection ends."""
    return UpstreamLost("the connection ended before the answer came")
