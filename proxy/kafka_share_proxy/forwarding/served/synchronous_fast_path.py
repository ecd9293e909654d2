"""The synchronous fast path for local requests of one connection, without a task (forwarding/README.md rule 39).

The connection is SERVING from the start of the request until the response is sent, so nothing after the request is
inspected. The awaited socket events stay as they are: bytes that arrive meanwhile are reported once, and mute the
socket.

Requests to the broker are sent together at the end of the loop iteration: a coordinator of 4.3 writes requests that
arrive together with one append to its log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.connection_state import ClientState
from kafka_share_proxy.forwarding.served.interfaces import ExpectedResponse
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

    __slots__ = ("_request", "_requests", "_started_at", "owner", "serve_repeated")

    def __init__(self, connection: ForwardedConnection, requests: ClientToBroker) -> None:
        self.owner = connection
        self._requests = requests
        self._request: Request | None = None
        self._started_at = 0.0
        self.serve_repeated: Callable[[SynchronousFastPath, memoryview], bool] | None = None
        """Serves received bytes that are one frame, and repeat the last one up to what may differ.

        Returns False for any others.
        """

    @property
    def may_take(self) -> bool:
        """Return True if a request that just arrived, alone and on the fast path, has nothing to wait for."""
        owner = self.owner
        responses = owner.responses
        if owner.pending or responses.missing or not responses.flows:
            return False
        if not owner.is_known or owner.state.now is not _PASSING:
            return False
        return owner.sasl.may_send_request(owner.plane.reactor.now())

    def send_at_once(self, request: Request, correlation_id: int, expected: ExpectedResponse, frame: bytes) -> None:
        """Begin to serve a request, and send `frame` to the broker. It may have the same correlation id.

        `may_take` must be true: the state is PASSING, the broker accepts bytes, and the exchange of SASL is over.
        """
        owner, later = self.owner, self._requests.send_later
        owner.state.move(_SERVING)
        self._request, self._started_at = request, time.perf_counter()
        owner.pending.append((correlation_id, expected))
        if later is None:
            owner.call_soon(partial(self._send, frame))
        else:
            later(frame)

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
        plane, state = owner.plane, owner.state
        plane.served(request.key, time.perf_counter() - self._started_at)
        plane.local_responses += 1
        if state.now is not _SERVING:
            return False
        state.move(_PASSING)
        if owner.client.waits_for == READ and not owner.client.has_unsent:
            self._requests.flows = True  # usually nothing has arrived meanwhile
        else:  # bytes of the client, a request of the proxy or a drain have changed the awaited events
            owner.update()
        return True
