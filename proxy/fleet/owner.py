"""The owner's end of a link: requests of clients that came to another proxy, served by the handlers as all others.

See `group_owners`. A client's connection is far away here (`FarConnection`): what is asked on it goes over the link,
and it ends when the edge says so, or with the link. Everything that belongs to a connection - share sessions, locks,
reservations, rights - thereby ends as it would at the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from proxy.brokers.connection_slots import SlotValues
from proxy.fleet.carried import CarriedFeatures
from proxy.fleet.edge import ANSWERED, FAILED, NOT_OWNER, REQUESTS_MAX, Send
from proxy.forwarding.interfaces import Call
from proxy.forwarding.services import Services
from proxy.loop.promise import PROCESS, Callback, CallbackOwner, Promise, Task, on_behalf_of
from proxy.loop.slices import Work
from proxy.reading.far_records import ELSEWHERE, Elsewhere
from proxy.wire import messages, registry
from proxy.wire.errors import ProxyError, RemoteProtocolError, UpstreamLost
from proxy.wire.frames import Answer
from proxy.wire.messages import Message
from proxy.wire.values import UNKNOWN_NODE


class FarConnection:
    """See interfaces.Connection: a client of another proxy. Owns the callbacks of its requests (CallbackOwner)."""

    def __init__(self, owner: PeerOwner, far_id: int, connection_id: int, node_id: int, client_host: str) -> None:
        self.id, self.node_id, self.client_host = connection_id, node_id, client_host
        self.slot_values: SlotValues = {}
        ELSEWHERE.put(self, Elsewhere(owner.number, owner.forget))
        self.tasks: dict[int, Task[Answer | None]] = {}
        """By the number of the request."""
        self.questions: dict[int, Promise[memoryview]] = {}
        self._owner = owner
        self._far_id = far_id
        self._callbacks: list[Callable[[], None]] = []
        self._is_closed = False

    @property
    def is_bootstrap(self) -> bool:
        """Nobody asks: what differs there is answered by the proxy of the client."""
        return self.node_id == UNKNOWN_NODE

    def ask(self, key: int, version: int, body: bytes) -> Promise[memoryview]:
        """See interfaces.Connection."""
        promise: Promise[memoryview] = Promise()
        if self._is_closed:
            promise.fail(UpstreamLost("the client has gone"))
        else:
            self._owner.ask(self, self._far_id, promise, key, version, body)
        return promise

    def on_close(self, callback: Callable[[], None]) -> None:
        """See interfaces.Connection."""
        self._callbacks.append(callback)

    def call_soon(self, callback: Callback) -> None:
        """See CallbackOwner."""
        self._owner.link.call_soon(partial(on_behalf_of, self, callback))

    def failed(self, error: Exception) -> None:
        """See CallbackOwner: its client's connection ends, and no other of the link."""
        self._owner.failed(self._far_id, self, error)

    def close(self) -> None:
        """The client has gone, or the link to its proxy."""
        self._is_closed = True
        for task in list(self.tasks.values()):
            task.cancel()
        self.tasks.clear()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            on_behalf_of(self, callback)
        questions, self.questions = self.questions, {}
        for promise in questions.values():
            on_behalf_of(self, partial(promise.fail, UpstreamLost("the client has gone")))


class PeerOwner:
    """Made when a link is established, of no use after `lost`."""

    def __init__(
        self,
        services: Services,
        carried: CarriedFeatures,
        send: Send,
        generation: Callable[[], int],
        numbers: Iterator[int],
        link: CallbackOwner = PROCESS,
    ) -> None:
        """`numbers` gives ids that no connection of this process has, and no other link."""
        self.link = link
        self.number = next(numbers)
        self._services = services
        self._carried = carried
        self._send = send
        self._generation = generation
        self._numbers = numbers
        self._connections: dict[int, FarConnection] = {}
        self._asked: dict[int, FarConnection] = {}
        self._questions = count(1)
        self._forgotten: list[int] = []
        self._told: set[str] | None = None
        """Groups that the other side knows of; None before it was told anything."""
        self._requests: dict[int, FarConnection] = {}
        """Number of a request -> the far connection that it belongs to, while it is served."""
        self._is_lost = False

    @property
    def connections(self) -> int:
        """Clients that came over this link."""
        return len(self._connections)

    def receive(self, message: Message) -> None:
        """A message of the edge. Raises RemoteProtocolError."""
        receiver = _RECEIVERS.get(type(message).__name__)
        if receiver is not None:
            receiver(self, message)

    def lost(self, _reason: str) -> None:
        """The link has ended, and with it all that came over it."""
        self._is_lost = True
        connections, self._connections = self._connections, {}
        self._asked.clear()
        self._requests.clear()
        for connection in connections.values():
            connection.close()
        self._carried.link_ended(self.number)

    def tell_groups(self) -> None:
        """Say which groups have come or gone since the last time."""
        held = self._carried.held.groups
        if self._told is not None and held == self._told:
            return
        told = self._told or set()
        added, removed = held - told, told - held
        self._told = set(held)
        self._send(messages.PeerGroups(added=sorted(added), removed=sorted(removed)))

    # What connections need

    def ask(
        self, connection: FarConnection, far_id: int, promise: Promise[memoryview], key: int, version: int, body: bytes
    ) -> None:
        """A question for the broker of a client."""
        number = next(self._questions)
        connection.questions[number] = promise
        self._asked[number] = connection
        self._send(messages.PeerQuestion(id=number, connection_id=far_id, api_key=key, api_version=version, body=body))

    def forget(self, chunk: int) -> None:
        """Records at the edge that nobody will refer to, once what is being answered in this turn has gone out."""
        if not self._forgotten and not self._is_lost:
            self._services.timers.call_at(self._services.timers.now(), self._forget)
        self._forgotten.append(chunk)

    def _forget(self) -> None:
        chunks, self._forgotten = self._forgotten, []
        if not self._is_lost:
            self._send(messages.PeerForget(chunks=chunks))

    # Messages

    def _requested(self, message: messages.PeerRequest) -> None:
        handler = self._carried.handler(message.feature, message.api_key)
        if handler is None or len(self._requests) >= REQUESTS_MAX or message.generation > self._generation():
            # Of a generation not heard of here: who knows whose the group is in that one?
            self._respond(message.id, NOT_OWNER)
            return
        try:
            request = registry.request(message.api_key, message.api_version).decode(bytes(message.body))
        except registry.UnknownVersion as error:
            raise RemoteProtocolError(str(error)) from None
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
        task: Task[Answer | None] = Task(handler(call), partial(self._done, message.id, connection), connection)
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
        connection.node_id = message.node_id  # behind a bootstrap listener known once it was dialled
        return connection

    def _done(self, number: int, connection: FarConnection, task: Task[Answer | None]) -> None:
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
            self._respond(number, ANSWERED, bytes(task.value))

    def _respond(self, number: int, outcome: int, frame: bytes | None = None) -> None:
        self._send(messages.PeerResponse(id=number, outcome=outcome, frame=frame))

    def _answered(self, message: messages.PeerAnswer) -> None:
        connection = self._asked.pop(message.id, None)
        promise = None if connection is None else connection.questions.pop(message.id, None)
        if connection is None or promise is None:
            return
        if message.reason is None:
            on_behalf_of(connection, partial(promise.set, memoryview(bytes(message.body))))
        else:
            on_behalf_of(connection, partial(promise.fail, UpstreamLost(message.reason)))

    def failed(self, far_id: int, connection: FarConnection, error: Exception) -> None:
        """A callback of a client raised: what it asked is answered so that the other proxy ends its connection."""
        self._services.notes("callback-failed", connection=connection.id, reason=repr(error), error=error)
        if self._connections.get(far_id) is connection:
            requests = list(connection.tasks)
            self._end(far_id)
            for number in requests:
                self._respond(number, FAILED)

    def _closed(self, message: messages.PeerClosed) -> None:
        self._end(message.connection_id)

    def _end(self, far_id: int) -> None:
        connection = self._connections.pop(far_id, None)
        if connection is not None:
            for number in connection.tasks:
                self._requests.pop(number, None)
            for number in connection.questions:
                self._asked.pop(number, None)
            connection.close()

    def _cancelled(self, message: messages.PeerCancel) -> None:
        connection = self._requests.pop(message.id, None)
        task = None if connection is None else connection.tasks.pop(message.id, None)
        if task is not None:
            task.cancel()

    def _holdings(self, message: messages.PeerHoldingsRequest) -> None:
        answer = messages.PeerHoldings
        held = self._carried.held.holdings()
        groups = [answer.HeldGroup(group_id=group.group_id, state=group.state) for group in held.groups]
        self._send(answer(id=message.id, groups=groups, with_settings=list(held.with_settings)))

    def _group_asked(self, message: messages.PeerGroupKnownRequest) -> None:
        is_known = self._carried.knows(message.feature, message.group_id)
        self._send(messages.PeerGroupKnown(id=message.id, is_known=is_known))


_RECEIVERS: dict[str, Callable[[PeerOwner, Any], None]] = {
    "PeerRequest": PeerOwner._requested,
    "PeerAnswer": PeerOwner._answered,
    "PeerClosed": PeerOwner._closed,
    "PeerCancel": PeerOwner._cancelled,
    "PeerHoldingsRequest": PeerOwner._holdings,
    "PeerGroupKnownRequest": PeerOwner._group_asked,
}
