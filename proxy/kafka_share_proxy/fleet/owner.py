"""Owner end of a link: requests of other proxies' clients, served by the same handlers as local ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from kafka_share_proxy.brokers.connection_slots import SlotValues
from kafka_share_proxy.fleet.carried import CarriedFeatures
from kafka_share_proxy.fleet.edge import FAILED, NOT_OWNER, REQUESTS_MAX, RESPONDED, Send
from kafka_share_proxy.fleet.peer_protocol import MESSAGES
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.services import Services
from kafka_share_proxy.loop.promise import PROCESS, Callback, CallbackOwner, Promise, Task, on_behalf_of
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.reading.far_records import ELSEWHERE, Elsewhere
from kafka_share_proxy.wire.codec.frames import ResponseFrame
from kafka_share_proxy.wire.definitions import messages, registry
from kafka_share_proxy.wire.definitions.messages import Message
from kafka_share_proxy.wire.errors import ProxyError, UpstreamLost
from kafka_share_proxy.wire.values import UNKNOWN_NODE


class FarConnection:
    """Connection of another proxy's client, for handlers here. See interfaces.Connection, CallbackOwner."""

    def __init__(self, owner: PeerOwner, far_id: int, connection_id: int, node_id: int, client_host: str) -> None:
        self.id, self.node_id, self.client_host = connection_id, node_id, client_host
        self.slot_values: SlotValues = {}
        ELSEWHERE.put(self, Elsewhere(owner.number, owner.forget))
        self.tasks: dict[int, Task[ResponseFrame | None]] = {}
        """Handler tasks by number of the request."""
        self.queries: dict[int, Promise[memoryview]] = {}
        """Requests to the broker over the client's own connection, by number."""
        self._owner = owner
        self._far_id = far_id
        """Id of the connection at the other proxy."""
        self._callbacks: list[Callable[[], None]] = []
        self._is_closed = False

    @property
    def is_bootstrap(self) -> bool:
        """True if the broker is unknown. Not used here."""
        return self.node_id == UNKNOWN_NODE

    def send_request(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        promise: Promise[memoryview] = Promise()
        if self._is_closed:
            promise.fail(UpstreamLost("the client has disconnected"))
        else:
            self._owner.send_request(self, self._far_id, promise, key, version, body)
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def not_on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.remove(callback)

    def call_soon(self, callback: Callback) -> None:
        self._owner.link.call_soon(partial(on_behalf_of, self, callback))

    def failed(self, error: Exception) -> None:
        """Close only the connection of this client, not the link (see CallbackOwner)."""
        self._owner.failed(self._far_id, self, error)

    def close(self) -> None:
        self._is_closed = True
        for task in list(self.tasks.values()):
            task.cancel()
        self.tasks.clear()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            on_behalf_of(self, callback)
        queries, self.queries = self.queries, {}
        for promise in queries.values():
            on_behalf_of(self, partial(promise.fail, UpstreamLost("the client has disconnected")))


class PeerOwner:
    """Owner end of one link."""

    def __init__(
        self,
        services: Services,
        carried: CarriedFeatures,
        send: Send,
        generation: Callable[[], int],
        numbers: Iterator[int],
        link: CallbackOwner = PROCESS,
    ) -> None:
        """`numbers` yields ids that no other connection has."""
        self.link = link
        self.number = next(numbers)
        self._services = services
        self._carried = carried
        self._send = send
        self._generation = generation
        self._numbers = numbers
        self._connections: dict[int, FarConnection] = {}
        self._pending_queries: dict[int, FarConnection] = {}
        self._queries = count(1)
        self._forgotten: list[int] = []
        """Chunks of records that the edge may drop, to be sent together."""
        self._notified: set[str] | None = None
        """Groups that the edge knows to be held here. None before it was notified."""
        self._requests: dict[int, FarConnection] = {}
        self._is_lost = False

    @property
    def connections(self) -> int:
        return len(self._connections)

    def receive(self, message: Message) -> None:
        """Raises RemoteProtocolError."""
        receiver = _RECEIVERS.get(type(message).__name__)
        if receiver is not None:
            receiver(self, message)

    def lost(self, _reason: str) -> None:
        """End the link and all its connections."""
        self._is_lost = True
        connections, self._connections = self._connections, {}
        self._pending_queries.clear()
        self._requests.clear()
        for connection in connections.values():
            connection.close()
        self._carried.link_ended(self.number)

    def send_groups(self) -> None:
        """Notify the edge of the groups that are held here, as a change of what it knows."""
        held = self._carried.held.groups
        if self._notified is not None and held == self._notified:
            return
        notified = self._notified or set()
        added, removed = held - notified, notified - held
        self._notified = set(held)
        self._send(messages.PeerGroups(added=sorted(added), removed=sorted(removed)))

    # Services for remote connections

    def send_request(
        self, connection: FarConnection, far_id: int, promise: Promise[memoryview], key: int, version: int, body: bytes
    ) -> None:
        number = next(self._queries)
        connection.queries[number] = promise
        self._pending_queries[number] = connection
        self._send(messages.PeerQuery(id=number, connection_id=far_id, api_key=key, api_version=version, body=body))

    def forget(self, chunk: int) -> None:
        """Let the edge drop records, after the responses of this iteration have been sent."""
        if not self._forgotten and not self._is_lost:
            self._services.timers.call_at(self._services.timers.now(), self._forget)
        self._forgotten.append(chunk)

    def _forget(self) -> None:
        chunks, self._forgotten = self._forgotten, []
        if not self._is_lost:
            self._send(messages.PeerForget(chunks=chunks))

    # Messages

    def _on_request(self, message: messages.PeerRequest) -> None:
        handler = self._carried.handler(message.feature, message.api_key)
        if handler is None or len(self._requests) >= REQUESTS_MAX or message.generation > self._generation():
            # With a generation that is not known here, the owner of the group is unknown too.
            self._respond(message.id, NOT_OWNER)
            return
        try:
            request = registry.request(message.api_key, message.api_version).decode(bytes(message.body))
        except registry.UnknownVersion:  # from a later version: the client retries, as without an owner
            self._respond(message.id, NOT_OWNER)
            return
        connection = self._connection(message)
        call = Call(
            message.api_key,
            message.api_version,
            message.correlation_id,
            message.client_id,
            request,
            connection,
            Work(self._services.slices),
        )
        task: Task[ResponseFrame | None] = Task(handler(call), partial(self._done, message.id, connection), connection)
        connection.tasks[message.id] = task
        self._requests[message.id] = connection
        task.start()

    def _connection(self, message: messages.PeerRequest) -> FarConnection:
        connection = self._connections.get(message.connection_id)
        if connection is None:
            connection = FarConnection(
                self, message.connection_id, next(self._numbers), message.node_id, message.client_host
            )
            self._connections[message.connection_id] = connection
        connection.node_id = message.node_id  # for a bootstrap listener, known only after the dial
        return connection

    def _done(self, number: int, connection: FarConnection, task: Task[ResponseFrame | None]) -> None:
        connection.tasks.pop(number, None)
        self._requests.pop(number, None)
        if self._is_lost:
            return
        if task.error is not None:
            if not isinstance(task.error, ProxyError):
                self._services.notes("handler-failed", reason=repr(task.error), error=task.error)
            self._respond(number, FAILED)
        elif task.value is None:
            self._respond(number, NOT_OWNER)
        else:
            self._respond(number, RESPONDED, bytes(task.value))

    def _respond(self, number: int, outcome: int, frame: bytes | None = None) -> None:
        self._send(messages.PeerResponse(id=number, outcome=outcome, frame=frame))

    def _on_query_response(self, message: messages.PeerQueryResponse) -> None:
        connection = self._pending_queries.pop(message.id, None)
        promise = None if connection is None else connection.queries.pop(message.id, None)
        if connection is None or promise is None:
            return
        if message.reason is None:
            on_behalf_of(connection, partial(promise.set, memoryview(bytes(message.body))))
        else:
            on_behalf_of(connection, partial(promise.fail, UpstreamLost(message.reason)))

    def _on_unknown_message(self, message: messages.PeerUnknown) -> None:
        """Fail a request that the other proxy has skipped because its version is earlier."""
        if 0 <= message.kind < len(MESSAGES) and MESSAGES[message.kind] == "PeerQuery":
            self._on_query_response(
                messages.PeerQueryResponse(id=message.id, reason="the client's proxy is of an earlier version")
            )

    def failed(self, far_id: int, connection: FarConnection, error: Exception) -> None:
        """Fail the client's requests, so that the other proxy closes its connection."""
        self._services.notes("callback-failed", connection=connection.id, reason=repr(error), error=error)
        if self._connections.get(far_id) is connection:
            requests = list(connection.tasks)
            self._end(far_id)
            for number in requests:
                self._respond(number, FAILED)

    def _on_closed(self, message: messages.PeerClosed) -> None:
        self._end(message.connection_id)

    def _end(self, far_id: int) -> None:
        connection = self._connections.pop(far_id, None)
        if connection is not None:
            for number in connection.tasks:
                self._requests.pop(number, None)
            for number in connection.queries:
                self._pending_queries.pop(number, None)
            connection.close()

    def _on_cancel(self, message: messages.PeerCancel) -> None:
        connection = self._requests.pop(message.id, None)
        task = None if connection is None else connection.tasks.pop(message.id, None)
        if task is not None:
            task.cancel()

    def _on_holdings_request(self, message: messages.PeerHoldingsRequest) -> None:
        response = messages.PeerHoldings
        held = self._carried.held.holdings()
        groups = [response.HeldGroup(group_id=group.group_id, state=group.state) for group in held.groups]
        self._send(response(id=message.id, groups=groups, with_settings=list(held.with_settings)))

    def _on_group_query(self, message: messages.PeerGroupKnownRequest) -> None:
        is_known = self._carried.knows(message.feature, message.group_id)
        self._send(messages.PeerGroupKnown(id=message.id, is_known=is_known))

    def _on_command(self, message: messages.PeerCommand) -> None:
        status, body = self._carried.command(message.feature, message.words)
        self._send(messages.PeerCommandResult(id=message.id, status=status, body=json.dumps(body)))


_RECEIVERS: dict[str, Callable[[PeerOwner, Any], None]] = {
    "PeerRequest": PeerOwner._on_request,
    "PeerQueryResponse": PeerOwner._on_query_response,
    "PeerClosed": PeerOwner._on_closed,
    "PeerCancel": PeerOwner._on_cancel,
    "PeerHoldingsRequest": PeerOwner._on_holdings_request,
    "PeerGroupKnownRequest": PeerOwner._on_group_query,
    "PeerCommand": PeerOwner._on_command,
    "PeerUnknown": PeerOwner._on_unknown_message,
}
