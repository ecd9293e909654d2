"""Edge end of a link: sends clients' requests to the owner, and the owner's requests to the clients' brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from kafka_share_proxy.brokers.connection_slots import OptionalSlot
from kafka_share_proxy.brokers.interfaces import Connection
from kafka_share_proxy.fleet.carried import EdgeOfLink
from kafka_share_proxy.fleet.group_owners import CommandResult, HeldGroup, Holdings, PeerLost
from kafka_share_proxy.fleet.peer_protocol import MESSAGES
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.interfaces import Timers
from kafka_share_proxy.loop.promise import PROCESS, CallbackOwner, Promise
from kafka_share_proxy.wire.codec.primitives import Buffer
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost

RESPONDED, NOT_OWNER, FAILED = range(3)
"""Outcomes of a request."""
REQUESTS_MAX = 10_000
"""Maximum number of requests that wait for one owner. Further ones are refused."""

T = TypeVar("T")
Send = Callable[[Message], None]


class _PendingRequest(NamedTuple):
    """Request that waits for the owner."""

    call: Call[Message]
    edge: EdgeOfLink
    promise: Promise[bytes | None]
    not_before: float
    """Earliest time of the response."""


class PeerEdge:
    """Edge of one link. See group_owners.Peer."""

    def __init__(
        self,
        edges: Mapping[str, EdgeOfLink],
        timers: Timers,
        send: Send,
        generation: Callable[[], int],
        link: CallbackOwner = PROCESS,
        on_groups: Callable[[], None] = lambda: None,
        take: Callable[[Call[Any]], Promise[None] | None] | None = None,
    ) -> None:
        """`edges`: feature -> its state at the edge for this link. `on_groups`: called when `groups` has changed.

        `take`: see `take_client`. None: the owner is on another machine.
        """
        self.groups: set[str] = set()
        """Share groups in the owner's last notifications."""
        self._on_groups = on_groups
        self._move_client = take
        self.edges = edges
        self._timers = timers
        self._send = send
        self._generation = generation
        self._link = link
        self._numbers = count(1)
        self._requests: dict[int, _PendingRequest] = {}
        self._holdings_requests: dict[int, Promise[Holdings]] = {}
        self._group_queries: dict[int, Promise[bool]] = {}
        self._commands: dict[int, Promise[CommandResult]] = {}
        self._connections: dict[int, Connection] = {}
        self._lost = ""

    @property
    def waiting(self) -> int:
        """Number of requests without a response."""
        return len(self._requests)

    def serve(self, call: Call[Message], feature: str) -> Promise[bytes | None]:
        promise: Promise[bytes | None] = Promise()
        if self._lost or len(self._requests) >= REQUESTS_MAX:
            promise.fail(PeerLost(self._lost or "too many requests wait for the proxy that owns the group"))
            return promise
        self._note_connection(call.connection)
        number = next(self._numbers)
        edge = self.edges[feature]
        request, not_before = edge.prepared(call)
        self._requests[number] = _PendingRequest(call, edge, promise, not_before)
        self._send(
            messages.PeerRequest(
                id=number,
                generation=self._generation(),
                connection_id=call.connection.id,
                node_id=call.connection.node_id,
                client_host=call.connection.client_host,
                client_id=call.client_id,
                api_key=call.key,
                api_version=call.version,
                correlation_id=call.correlation_id,
                body=registry.request(call.key, call.version).encode(request),
                feature=feature,
            )
        )
        return promise

    def take_client(self, call: Call[Any]) -> Promise[None] | None:
        return None if self._move_client is None or self._lost else self._move_client(call)

    def give_up(self, response: Promise[bytes | None]) -> None:
        if response.done:
            return
        for number in [number for number, request in self._requests.items() if request.promise is response]:
            del self._requests[number]
            self._send(messages.PeerCancel(id=number))

    def holdings(self) -> Promise[Holdings]:
        return self._query(self._holdings_requests, lambda number: messages.PeerHoldingsRequest(id=number))

    def knows(self, feature: str, group_id: str) -> Promise[bool]:
        return self._query(
            self._group_queries,
            lambda number: messages.PeerGroupKnownRequest(id=number, feature=feature, group_id=group_id),
        )

    def command(self, feature: str, words: Sequence[str]) -> Promise[CommandResult]:
        return self._query(
            self._commands, lambda number: messages.PeerCommand(id=number, feature=feature, words=list(words))
        )

    def _query(self, pending: dict[int, Promise[T]], message: Callable[[int], Message]) -> Promise[T]:
        """Send a message with a new number, and return the promise of its response, which is kept in `pending`."""
        promise: Promise[T] = Promise()
        if self._lost:
            promise.fail(PeerLost(self._lost))
            return promise
        number = next(self._numbers)
        pending[number] = promise
        self._send(message(number))
        return promise

    def receive(self, message: Message) -> None:
        """Raises RemoteProtocolError."""
        receiver = _RECEIVERS.get(type(message).__name__)
        if receiver is not None:
            receiver(self, message)

    def lost(self, reason: str) -> None:
        self._lost = reason or "the link to the proxy that owns the group ended"
        for connection in self._connections.values():
            (_EDGES.of(connection) or {}).pop(self, None)
        self._connections.clear()
        pending: list[Promise[Any]] = [request.promise for request in self._requests.values()]
        for queries in (self._holdings_requests, self._group_queries, self._commands):
            pending += queries.values()
            queries.clear()
        self._requests.clear()
        for promise in pending:
            promise.fail(PeerLost(self._lost))

    # Connections

    def _note_connection(self, connection: Connection) -> None:
        if connection.id in self._connections:
            return
        self._connections[connection.id] = connection
        edges = _EDGES.of(connection)
        if edges is None:
            edges = {}
            _EDGES.put(connection, edges)
            connection.on_close(partial(_closed, edges, connection.id))
        edges[self] = None

    def connection_closed(self, connection_id: int) -> None:
        if self._connections.pop(connection_id, None) is None:
            return
        for number in [n for n, request in self._requests.items() if request.call.connection.id == connection_id]:
            del self._requests[number]
        self._send(messages.PeerClosed(connection_id=connection_id))

    # Requests

    def _on_response(self, message: messages.PeerResponse) -> None:
        request = self._requests.pop(message.id, None)
        if request is None:
            return
        if message.outcome == NOT_OWNER:
            request.promise.set(None)
        elif message.outcome != RESPONDED or message.frame is None:
            request.promise.fail(UpstreamLost("while the owner of the group served"))
        else:
            self._complete(request, message.frame)

    def _complete(self, request: _PendingRequest, frame: Buffer) -> None:
        """Raises RemoteProtocolError if the owner's response is invalid."""
        try:
            response = request.edge.completed(request.call, frame)
        except ProxyError as error:
            request.promise.fail(PeerLost(str(error)))
            raise
        except Exception as error:
            request.promise.fail(error)  # an internal error ends the client's connection, not the link
            return
        if response is None:
            self.connection_closed(request.call.connection.id)
            request.promise.fail(PeerLost("records were dropped before they could be sent"))
        elif request.not_before > self._timers.now():
            self._timers.call_at(request.not_before, partial(request.promise.set, response))
        else:
            request.promise.set(response)

    # Requests of the owner

    def _on_query(self, message: messages.PeerQuery) -> None:
        connection = self._connections.get(message.connection_id)
        if connection is None:
            self._send(messages.PeerQueryResponse(id=message.id, reason="the client has disconnected"))
            return
        response = connection.send_request(message.api_key, message.api_version, bytes(message.body))
        response.on_settled(partial(self._send_query_response, message, response), self._link)

    def _send_query_response(
        self, query: messages.PeerQuery, response: Promise[memoryview] | Promise[bytes], *, is_kept: bool = False
    ) -> None:
        """Send a broker's response to the owner. `is_kept`: the parts that features keep here are removed already."""
        if self._lost:
            return
        reply = messages.PeerQueryResponse(id=query.id, reason=None)
        try:
            body = response.result() if is_kept else self._without_local_parts(query, response.result())
            if isinstance(body, Promise):
                body.on_settled(partial(self._send_query_response, query, body, is_kept=True), self._link)
                return
            reply.body = body
        except ProxyError as error:
            reply.reason = str(error) or type(error).__name__
        except Exception as error:
            reply.reason = "a fault of the client's proxy"
            self._fail_requests_of(query.connection_id, error)
        self._send(reply)

    def _without_local_parts(self, query: messages.PeerQuery, response: Buffer) -> Buffer | Promise[bytes]:
        """Remove the parts that features keep here. Raises ProxyError."""
        for edge in self.edges.values():
            body = edge.to_owner(query.api_key, query.api_version, bytes(query.body), memoryview(response))
            if isinstance(body, Promise):
                return body
            response = body
        return response

    def _fail_requests_of(self, connection_id: int, error: Exception) -> None:
        """Fail the requests of one client. That ends its connection, not the link."""
        for number in [n for n, request in self._requests.items() if request.call.connection.id == connection_id]:
            self._requests.pop(number).promise.fail(error)

    # Other messages

    def _on_forget(self, message: messages.PeerForget) -> None:
        for edge in self.edges.values():
            edge.forget(message.chunks)

    def _on_holdings(self, message: messages.PeerHoldings) -> None:
        promise = self._holdings_requests.pop(message.id, None)
        if promise is not None:
            groups = [HeldGroup(group.group_id, group.state) for group in message.groups]
            promise.set(Holdings(groups, list(message.with_settings)))

    def _on_group_known(self, message: messages.PeerGroupKnown) -> None:
        promise = self._group_queries.pop(message.id, None)
        if promise is not None:
            promise.set(message.is_known)

    def _on_command_result(self, message: messages.PeerCommandResult) -> None:
        """Raises RemoteProtocolError if the result is not JSON."""
        promise = self._commands.pop(message.id, None)
        if promise is None:
            return
        try:
            promise.set(CommandResult(message.status, json.loads(message.body)))
        except ValueError:
            promise.fail(PeerLost("the other proxy sent an invalid result"))
            raise RemoteProtocolError("the result of a command is not JSON") from None

    def _on_unknown_message(self, message: messages.PeerUnknown) -> None:
        """Fail a request that the other proxy has skipped because its version is earlier."""
        kind = MESSAGES[message.kind] if 0 <= message.kind < len(MESSAGES) else ""
        if kind == "PeerRequest" and (request := self._requests.pop(message.id, None)) is not None:
            request.promise.set(None)
        waiting: Mapping[str, dict[int, Any]] = {
            "PeerHoldingsRequest": self._holdings_requests,
            "PeerGroupKnownRequest": self._group_queries,
            "PeerCommand": self._commands,
        }
        promise = waiting.get(kind, {}).pop(message.id, None)
        if promise is not None:
            promise.fail(PeerLost("the other proxy is of an earlier version and does not know this request"))

    def _on_group_changes(self, message: messages.PeerGroups) -> None:
        self.groups.difference_update(message.removed)
        self.groups.update(message.added)
        self._on_groups()


_EDGES = OptionalSlot[dict[PeerEdge, None]]()
"""Links over which a connection is known."""


def _closed(edges: dict[PeerEdge, None], connection_id: int) -> None:
    for edge in list(edges):
        edge.connection_closed(connection_id)


_RECEIVERS: dict[str, Callable[[PeerEdge, Any], None]] = {
    "PeerResponse": PeerEdge._on_response,
    "PeerQuery": PeerEdge._on_query,
    "PeerForget": PeerEdge._on_forget,
    "PeerHoldings": PeerEdge._on_holdings,
    "PeerGroupKnown": PeerEdge._on_group_known,
    "PeerGroups": PeerEdge._on_group_changes,
    "PeerCommandResult": PeerEdge._on_command_result,
    "PeerUnknown": PeerEdge._on_unknown_message,
}
