"""The synchronous fast path for local requests of one connection, without a task (forwarding/README.md rule 39).

The connection is SERVING from the start of the request until the response is sent, so nothing after the request is
inspected. The awaited socket events stay as they are: bytes that arrive meanwhile are reported once, and mute the
socket.

Requests to the broker are sent together at the end of the loop iteration: a coordinator of 4.3 writes requests that
arrive together with one append to its log.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.forwarding.sasl import JUDGED
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse, RepeatableRequest
from kafka_share_proxy.loop.interfaces import Request
from kafka_share_proxy.loop.polling import READ

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.client_to_broker import ClientToBroker
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

_PASSING, _SERVING = ClientState.PASSING, ClientState.SERVING
"""Looked up with every request, which is slow in an enum (CPython 3.11)."""


class SynchronousFastPath:
    """Client connection on the synchronous fast path: call `send_at_once`, then `immediate_response`.

    Created at the first such request.
    """

    __slots__ = ("_arrived_at", "_buffer", "_pending", "_request", "_requests", "_responses", "owner", "repeated")

    def __init__(self, connection: ForwardedConnection, requests: ClientToBroker) -> None:
        self.owner = connection
        self._requests, self._responses, self._pending = requests, connection.responses, connection.pending
        self._buffer = connection.plane.reactor.buffer
        self._request: Request | None = None
        self._arrived_at = 0.0
        self.repeated: RepeatableRequest | None = None
        """Request that received bytes are compared with first."""

    def may_take(self) -> bool:
        """Return True if a request that just arrived, alone and on the fast path, has nothing to wait for."""
        owner, responses = self.owner, self._responses
        if self._pending or responses.missing or not responses.flows:
            return False
        if not owner.is_known or owner.state.now is not _PASSING:
            return False
        self._arrived_at = now = monotonic()
        return owner.sasl.may_send_request(now)

    def repeats(self, size: int) -> bool:
        """Serve received bytes that are one request, and repeat the last one. `size`: their number.

        This does what `may_take` and `send_at_once` do. The broker knows the client since the last one.
        """
        repeated, responses, pending = self.repeated, self._responses, self._pending
        if repeated is None or pending or responses.missing or not responses.flows:
            return False
        owner, requests, now = self.owner, self._requests, monotonic()
        sasl = owner.sasl
        if sasl.stage not in JUDGED or now >= sasl.expires:
            return False
        requests.flows = False  # until the response is sent, or the request is left to the slow path
        plan = repeated.plan(self._buffer, size, now)
        if plan is None:
            return False
        owner.state.now, self._request, self._arrived_at = _SERVING, repeated.request, now  # it was PASSING, as `flows`
        pending.append((plan[1], repeated))
        (requests.send_later or self._send_soon)(plan[0])
        return True

    def send_at_once(self, request: Request, correlation_id: int, expected: ExpectedResponse, frame: bytes) -> None:
        """Begin to serve a request, and send `frame` to the broker. It may have the same correlation id.

        `may_take` must be true: the state is PASSING, the broker accepts bytes, and the exchange of SASL is over.
        """
        self.owner.state.move(_SERVING)
        self._request = request
        self._pending.append((correlation_id, expected))
        (self._requests.send_later or self._send_soon)(frame)

    def _send_soon(self, frame: bytes) -> None:
        self.owner.call_soon(partial(self._send, frame))

    def _send(self, frame: bytes) -> None:
        owner = self.owner
        if owner.state.now is not _SERVING:
            return  # the connection has ended, and the waiter for the response was notified
        owner.upstream.send(frame)
        if owner.upstream.has_unsent:
            owner.update()

    def immediate_response(self, frame: bytes) -> None:
        """Send the response. Does nothing if the connection has ended."""
        owner = self.owner
        if self._request is not None and owner.state.now is _SERVING:
            owner.responses.bytes += len(frame)
            owner.to_client(frame)
            self.forwards_response()

    def forwards_response(self) -> bool:
        """Return True if the broker's response, which has just arrived, is the client's. `on_response` returns it."""
        owner, request, self._request = self.owner, self._request, None
        if request is None:
            return False
        plane, state, client = owner.plane, owner.state, owner.client
        plane.served(request.key, monotonic() - self._arrived_at)
        plane.local_responses += 1
        if state.now is not _SERVING:
            return False
        state.now = _PASSING  # the table allows it, and `move` would check that for thousands of requests a second
        if client.waits_for == READ and not client.has_unsent:
            self._requests.flows = True  # usually nothing has arrived meanwhile
        else:  # bytes of the client, a request of the proxy or a drain have changed the awaited events
            owner.update()
        return True
