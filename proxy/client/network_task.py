"""The task that does all I/O of one consumer, and the application's end of its channels (client/README.md rules 1-3).

Theory of operation. Each turn of the loop: take what the application said and what brokers answered, ask the core what
is to be sent, send it, tell the application what happened; then wait until anybody says something, or for the core's
next deadline. Nothing else changes the core, but for what the application's poll takes out of its buffer.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from proxy.brokers.own_connection import OwnSettings
from proxy.client.broker_connections import BrokerConnections
from proxy.client.notes import Observe, ignore, note_of
from proxy.consumer.coordinator_requests import CoordinatorRequests
from proxy.consumer.core import ConsumerCore
from proxy.consumer.events import (
    ApplicationEvent,
    Assign,
    BackgroundError,
    BackgroundEvent,
    CallDone,
    CatchUpChanged,
    ConsumerError,
    FetchArrived,
    LeaveGroup,
    PartitionsLost,
    Subscribe,
)
from proxy.consumer.metadata_requests import MetadataRequests, NodeAddress
from proxy.consumer.requests import Outcome, UnsentRequest
from proxy.consumer.share_events import ShareApplicationEvent
from proxy.wire.errors import ConfigError, ProxyError
from proxy.wire.values import Address

CALLS_MAX = 10_000
"""Calls that wait for their result, and events that the network task has not taken; one more is refused."""
ERRORS_MAX = 100
"""Errors that wait for the application's next poll; later ones are not kept, for those before say the same."""
TURN_MIN_S = 0.001
"""A deadline that has passed already makes a turn wait so long: a mistake elsewhere must not burn the processor."""


class ConsumerClosed(ConsumerError):
    """The consumer is closed, or its network task has ended."""


class PollBegan(NamedTuple):
    """The application polls: what it did not delay is released (ConsumerCore.begin_poll)."""

    call_id: int
    continues: bool = False
    """The poll before was cancelled, and this one goes on with it: nothing is released again."""


ToNetwork = ApplicationEvent | ShareApplicationEvent | PollBegan


class DrivenCore(Protocol):
    """What decides: ConsumerCore, or ShareCore."""

    coordinator: CoordinatorRequests
    metadata: MetadataRequests
    next_deadline: float

    def start(self, now: float, /) -> None:
        """The network side runs."""
        ...

    def stop(self, now: float, /) -> None:
        """Nothing is asked any more."""
        ...

    def handle(self, event: Any, now: float, /) -> None:
        """Take what the application said."""
        ...

    def poll(self, now: float, /) -> Sequence[UnsentRequest]:
        """What is to be sent now."""
        ...

    def on_response(self, request: UnsentRequest, outcome: Outcome, now: float, /) -> None:
        """Take what became of a request."""
        ...

    def events(self) -> Sequence[BackgroundEvent]:
        """What the application is to be told."""
        ...


Core = TypeVar("Core", bound=DrivenCore)


@dataclass(eq=False, slots=True)
class _Cell:
    """The one result of a call."""

    result: CallDone
    done: trio.Event = field(default_factory=trio.Event)


def jitter() -> float:
    """Draw from [-1, 1)."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 31) - 1


class NetworkLoop(Generic[Core]):
    """`run` is the network side; every other public method is for the application."""

    def __init__(
        self, core: Core, bootstrap: Sequence[Address], settings: OwnSettings, observe: Observe = ignore
    ) -> None:
        self.core = core
        self.observe = observe
        self._is_waited_for = False
        """The application waits in poll for what happens: it is alive, however long that takes."""
        self.closed = ""
        """Why nothing is done any more; empty while it runs."""
        self.connections: BrokerConnections | None = None
        self._bootstrap, self._settings = bootstrap, settings
        self._to_network, self._from_application = trio.open_memory_channel[ToNetwork](CALLS_MAX)
        self._to_application, self.background = trio.open_memory_channel[BackgroundEvent](math.inf)
        self._outcomes: deque[tuple[UnsentRequest, Outcome]] = deque()
        self._something = trio.Event()
        self._turned = trio.Event()
        self._cells: dict[int, _Cell] = {}
        self._call_ids = count(1)
        self._errors_kept = 0
        self._arrival_told = False
        self._nodes_seen: tuple[Any, tuple[str, int] | None] = (None, None)

    # The application's side

    def tell(self, event: ToNetwork) -> None:
        """Put an event into the channel. ConsumerClosed: nobody takes it any more."""
        if self.closed:
            raise ConsumerClosed(self.closed)
        try:
            self._to_network.send_nowait(event)
        except trio.WouldBlock:
            raise ConsumerError(f"{CALLS_MAX} calls wait already: await some of them") from None
        self._something.set()

    async def call(self, event: Callable[[int], ToNetwork]) -> Any:
        """Say it and wait for the result, which is the value or the error of its CallDone.

        Cancelled: the event stands, and its result is not waited for.
        """
        if len(self._cells) >= CALLS_MAX:
            raise ConsumerError(f"{CALLS_MAX} calls wait already: await some of them")
        call_id = next(self._call_ids)
        cell = _Cell(CallDone(call_id=call_id))
        self.tell(event(call_id))
        self._cells[call_id] = cell
        try:
            await cell.done.wait()
        finally:
            self._cells.pop(call_id, None)
        if cell.result.error is not None:
            raise cell.result.error
        return cell.result.value

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to be so, looking after every turn. ConsumerClosed: it will never be."""
        await trio.lowlevel.checkpoint()
        while not condition():
            if self.closed:
                raise ConsumerClosed(self.closed)
            await self._turned.wait()

    def arrival_taken(self) -> None:
        """The application has looked into the buffer: of what comes from now on it wants to hear."""
        self._arrival_told = False

    async def next_event(self) -> BackgroundEvent:
        """The next one out of the channel. ConsumerClosed: none will come."""
        self._is_waited_for = True
        try:
            return await self.background.receive()
        except trio.EndOfChannel:
            raise ConsumerClosed(self.closed) from None
        finally:
            self._is_waited_for = False

    def nudge(self) -> None:
        """Have the loop turn: there is room in the buffer."""
        self._something.set()

    def error_taken(self) -> None:
        """The application has got an error: there is room for another."""
        self._errors_kept -= 1

    def interrupt(self, error: ProxyError) -> None:
        """Have the application's next or present poll raise it."""
        self._to_application.send_nowait(BackgroundError(error=error))
        self._errors_kept += 1

    # The network side

    async def run(self) -> None:
        """Work until cancelled."""
        self.core.start(trio.current_time())
        try:
            async with trio.open_nursery() as nursery:
                self.connections = BrokerConnections(nursery, self._bootstrap, self._settings, jitter, self._came)
                while True:
                    await self._turn(self.connections)
        finally:
            self._end()

    async def _turn(self, connections: BrokerConnections) -> None:
        self._something = trio.Event()
        self._take(trio.current_time())
        self._note_nodes(connections)
        for request in self.core.poll(trio.current_time()):
            connections.send(request)
        self._tell_application(self.core.events())
        turned, self._turned = self._turned, trio.Event()
        turned.set()
        with trio.move_on_at(max(self.core.next_deadline, trio.current_time() + TURN_MIN_S)):
            await self._something.wait()

    def _take(self, now: float) -> None:
        while True:
            try:
                event = self._from_application.receive_nowait()
            except trio.WouldBlock:
                break
            self._handle(event, now)
        while self._outcomes:
            request, outcome = self._outcomes.popleft()
            self.core.on_response(request, outcome, now)

    def _handle(self, event: ToNetwork, now: float) -> None:
        try:
            self.core.handle(event, now)
        except (ConfigError, ValueError) as error:  # the application's side looks first; what it overlooked is told
            failed = ConsumerError(str(error))
            caller: int | None = getattr(event, "call_id", None)
            self._tell_application(
                [BackgroundError(error=failed) if caller is None else CallDone(call_id=caller, error=failed)]
            )

    def _came(self, request: UnsentRequest, outcome: Outcome) -> None:
        self._outcomes.append((request, outcome))
        self._something.set()

    def _note_nodes(self, connections: BrokerConnections) -> None:
        """Where brokers listen: as Metadata said last, and as FindCoordinator said of the coordinator."""
        coordinator, nodes = self.core.coordinator, self.core.metadata.nodes
        if nodes is self._nodes_seen[0] and coordinator.address == self._nodes_seen[1]:
            return
        self._nodes_seen = (nodes, coordinator.address)
        connections.nodes = {node_id: _address(node) for node_id, node in nodes.items()}
        if coordinator.node_id is not None and coordinator.address is not None:
            connections.nodes = {**connections.nodes, coordinator.node_id: Address(*coordinator.address)}

    def _tell_application(self, events: Sequence[BackgroundEvent]) -> None:
        for event in events:
            if isinstance(event, PartitionsLost | CatchUpChanged):
                self.observe(note_of(event))
            if isinstance(event, CallDone):
                self._finish(event)
            elif self._is_wanted(event):
                self._to_application.send_nowait(event)

    def _is_wanted(self, event: BackgroundEvent) -> bool:
        """Of arrivals one is enough, of errors there is an end, and notes are for the observer."""
        if isinstance(event, CatchUpChanged):
            return False
        if isinstance(event, FetchArrived):
            told, self._arrival_told = self._arrival_told, True
            return not told
        if isinstance(event, BackgroundError):
            if self._errors_kept >= ERRORS_MAX:
                return False
            self._errors_kept += 1
        return True

    def _finish(self, result: CallDone) -> None:
        """Of a call that was given up nobody waits for the result."""
        cell = self._cells.pop(result.call_id, None)
        if cell is not None:
            cell.result = result
            cell.done.set()

    def _end(self) -> None:
        self.closed = self.closed or "the consumer is closed"
        self.core.stop(trio.current_time())
        error = ConsumerClosed(self.closed)
        for call_id in list(self._cells):
            self._finish(CallDone(call_id=call_id, error=error))
        self._to_application.close()
        self._turned.set()


class NetworkTask(NetworkLoop[ConsumerCore]):
    """Of a consumer, whose polls the network side takes part in."""

    _is_member = False

    async def begin_poll(self, *, continues: bool) -> None:
        """Have a poll begin behind all that was said before; the network side turns only where it has something to do.

        Args:
            continues: the poll before was cancelled, and this one goes on with it.
        """
        waits = continues or self.closed or self._from_application.statistics().current_buffer_used
        if not waits and self.core.begin_poll_quietly(trio.current_time()):
            await trio.lowlevel.checkpoint()
        else:
            await self.call(lambda call_id: PollBegan(call_id, continues))

    def _take(self, now: float) -> None:
        super()._take(now)
        if self._is_waited_for and self._is_member:
            self.core.membership.polled(now)

    def _handle(self, event: ToNetwork, now: float) -> None:
        match event:
            case PollBegan(call_id, continues):
                if continues:
                    self.core.coordinator.retry()
                else:
                    self.core.begin_poll(now)
                self._finish(CallDone(call_id=call_id))
                return
            case Subscribe(topics, pattern):
                self._is_member = bool(topics or pattern)
            case Assign() | LeaveGroup():
                self._is_member = False
            case _:
                pass
        super()._handle(event, now)


def _address(node: NodeAddress) -> Address:
    return Address(node.host, node.port)
