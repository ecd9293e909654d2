"""The task that does all I/O of one consumer, and the application's side of its channels (client/README.md rules 1-3).

Each iteration processes events and responses, polls the core, sends requests, and reports events. Nothing else changes
the core, except that the application's poll removes records from its buffer.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from kafka_share_proxy.brokers.cluster_connection import ClusterClientSettings
from kafka_share_proxy.client.broker_connections import BrokerConnections
from kafka_share_proxy.client.client_metrics import ClientMetrics
from kafka_share_proxy.client.notes import Observe, ignore, note_of
from kafka_share_proxy.client.trouble_log import TroubleLog
from kafka_share_proxy.consumer.client_core import ClientCore
from kafka_share_proxy.consumer.core import ConsumerCore
from kafka_share_proxy.consumer.events import (
    ApplicationEvent,
    Assign,
    AwaitAcknowledgements,
    BackgroundError,
    BackgroundEvent,
    CallDone,
    CallTimedOut,
    CatchUpChanged,
    Commit,
    ConsumerError,
    FetchArrived,
    FetchCommitted,
    LeaveGroup,
    ListOffsets,
    PartitionsLost,
    ShareApplicationEvent,
    Subscribe,
)
from kafka_share_proxy.consumer.metadata_requests import NodeAddress
from kafka_share_proxy.consumer.options import ConfigurationError
from kafka_share_proxy.consumer.requests import Outcome, UnsentRequest
from kafka_share_proxy.loop.boot_clock import SuspensionClock
from kafka_share_proxy.wire.errors import ProxyError
from kafka_share_proxy.wire.values import Address

CALLS_MAX = 10_000
"""Maximum number of waiting calls, and of unprocessed events."""
ERRORS_MAX = 100
"""Maximum number of unreported errors. Later ones repeat earlier ones and are dropped."""
ITERATION_MIN_S = 0.001
"""Minimum wait of an iteration in seconds: a bug elsewhere must not cause a busy loop."""


class ConsumerClosed(ConsumerError):
    """The consumer is closed, or its network task has ended."""


class WokenUp(ConsumerError):
    """The poll ended because `wakeup` was called."""


class PollBegan(NamedTuple):
    """The application polls: partitions that it did not delay are released (ConsumerCore.begin_poll)."""

    call_id: int
    continues: bool = False
    """True if a cancelled poll continues. It releases no partitions again."""


class GiveUp(NamedTuple):
    """The caller has stopped waiting for its result."""

    call_id: int


class ListTopics(NamedTuple):
    """List the topics of the cluster. The result is topic -> its partitions."""

    call_id: int
    topic: str | None
    """None means all topics."""


ToNetwork = ApplicationEvent | ShareApplicationEvent | PollBegan | GiveUp | ListTopics

CALL_NAMES: dict[type, str] = {
    Commit: "commit",
    FetchCommitted: "looking up committed offsets",
    ListOffsets: "looking up offsets",
    LeaveGroup: "leaving the group",
    ListTopics: "listing topics",
    AwaitAcknowledgements: "acknowledging records",
}
"""Names of calls in the text of CallTimedOut."""

Core = TypeVar("Core", bound=ClientCore[Any])


@dataclass(eq=False, slots=True)
class _WaitingCall:
    """Cell for the one result of a call."""

    result: CallDone
    done: trio.Event = field(default_factory=trio.Event)


def jitter() -> float:
    """Return a random number from [-1, 1), the jitter of backoffs."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 31) - 1


class NetworkLoop(Generic[Core]):
    """I/O of one consumer. `run` is the network side; every other public method is for the application."""

    def __init__(
        self,
        core: Core,
        bootstrap: Sequence[Address],
        settings: ClusterClientSettings,
        observe: Observe = ignore,
        clock: SuspensionClock | None = None,
        metrics: ClientMetrics | None = None,
    ) -> None:
        self.core = core
        self.metrics = metrics or ClientMetrics()
        self.clock = clock or SuspensionClock()
        """Clock that continues while the machine is suspended, because locks and sessions end then too."""
        self.observe = observe
        group_id = core.options.group_id
        self.log = TroubleLog("consumer without a group" if group_id is None else f"consumer of group {group_id!r}")
        core.troubles.observer = self.log.observer
        self._is_waited_for = False
        """True while a poll waits: then the application is alive, however long the wait."""
        self.closed_reason = ""
        """Reason for the end of the consumer. Empty while it runs."""
        self.connections: BrokerConnections | None = None
        self._bootstrap, self._settings = bootstrap, settings
        self._to_network, self._from_application = trio.open_memory_channel[ToNetwork](CALLS_MAX)
        self._to_application, self.background = trio.open_memory_channel[BackgroundEvent](math.inf)
        self._outcomes: deque[tuple[UnsentRequest, Outcome]] = deque()
        self._has_work = trio.Event()
        self._iteration_done = trio.Event()
        self._waiting_calls: dict[int, _WaitingCall] = {}
        self._call_ids = count(1)
        self._unreported_errors = 0
        self._is_arrival_reported = False
        self._is_running = False
        self._nodes_seen: tuple[Any, tuple[str, int] | None] = (None, None)

    # Called by the application

    def send_event(self, event: ToNetwork) -> None:
        """Put an event into the channel. Raises ConsumerClosed, and ConsumerError if too many events wait."""
        if self.closed_reason:
            raise ConsumerClosed(self.closed_reason)
        try:
            self._to_network.send_nowait(event)
        except trio.WouldBlock:
            raise ConsumerError(f"{CALLS_MAX} calls wait already: await some of them") from None
        self._has_work.set()

    @trio.lowlevel.enable_ki_protection
    def apply(self, event: ToNetwork) -> None:
        """Put an event into the channel and process it now, after all events before it.

        The caller's next call sees its effect (client/README.md rule 2). Raises ConsumerClosed, and ConsumerError if
        too many events wait.
        """
        self.send_event(event)
        if self._is_running:
            self._process_events(self.clock.now())

    async def call(self, event: Callable[[int], ToNetwork]) -> Any:
        """Send an event, and wait for its CallDone. Return its value, or raise its error.

        If cancelled, the event is still processed. Raises CallTimedOut if there is no result within api_timeout_s.
        """
        if len(self._waiting_calls) >= CALLS_MAX:
            raise ConsumerError(f"{CALLS_MAX} calls wait already: await some of them")
        call_id = next(self._call_ids)
        waiting_call = _WaitingCall(CallDone(call_id=call_id))
        request_event = event(call_id)
        self.send_event(request_event)
        self._waiting_calls[call_id] = waiting_call
        try:
            with self._time_limit(CALL_NAMES.get(type(request_event), "the call"), call_id):
                await waiting_call.done.wait()
        finally:
            self._waiting_calls.pop(call_id, None)
            if not (waiting_call.done.is_set() or self.closed_reason):
                with suppress(ConsumerError):  # the channel is full
                    self.send_event(GiveUp(call_id))
        if waiting_call.result.error is not None:
            raise waiting_call.result.error
        return waiting_call.result.value

    async def wait_until(self, condition: Callable[[], bool], *, call: str = "") -> None:
        """Wait until a condition, checked after each loop iteration, is true.

        Without the name of a `call` there is no time limit. Raises ConsumerClosed, and CallTimedOut after
        api_timeout_s.
        """
        await trio.lowlevel.checkpoint()
        with self._time_limit(call) if call else nullcontext():
            while not condition():
                if self.closed_reason:
                    raise ConsumerClosed(self.closed_reason)
                await self._iteration_done.wait()

    @contextmanager
    def _time_limit(self, call: str, call_id: int = 0) -> Iterator[None]:
        """Raise the last refusal of the call by a broker, else CallTimedOut."""
        timeout_s = self.core.options.api_timeout_s
        try:
            with trio.fail_after(timeout_s):
                yield
        except trio.TooSlowError:
            if (refusal := self.core.last_refusal(call_id)) is not None:
                raise refusal from None
            raise CallTimedOut(f"{call}: no result within {timeout_s:g} s; {self.why()}") from None

    def why(self) -> str:
        """Return what the consumer waits for, for log lines and errors."""
        return self.core.troubles.why() or f"no broker has refused anything: {self.core.waits_for}"

    def report_next_arrival(self) -> None:
        """Allow another FetchArrived event: the application has seen the last one."""
        self._is_arrival_reported = False

    async def next_event(self) -> BackgroundEvent:
        """Wait for an event of the network side. Raises ConsumerClosed if the consumer has ended."""
        self._is_waited_for = True
        try:
            return await self.background.receive()
        except trio.EndOfChannel:
            raise ConsumerClosed(self.closed_reason) from None
        finally:
            self._is_waited_for = False

    def wake(self) -> None:
        """Run a loop iteration now, because the application has changed the core."""
        self._has_work.set()

    def on_error_reported(self) -> None:
        """Make room for another error (ERRORS_MAX)."""
        self._unreported_errors -= 1

    def interrupt(self, error: ProxyError) -> None:
        """Make the waiting poll, or else the next one, raise this error."""
        self._to_application.send_nowait(BackgroundError(error=error))
        self._unreported_errors += 1

    # Network side

    async def run(self) -> None:
        """Run the network side until it is cancelled. Connections end with it."""
        self.core.start(self.clock.now())
        self._is_running = True
        try:
            async with trio.open_nursery() as nursery:
                self.connections = BrokerConnections(
                    nursery, self._bootstrap, self._settings, jitter, self._on_outcome, self.core.troubles, self.metrics
                )
                while True:
                    await self._iterate(self.connections)
        finally:
            self._end()

    async def _iterate(self, connections: BrokerConnections) -> None:
        self._has_work = trio.Event()
        self._process_inputs(self.clock.now())
        self._note_nodes(connections)
        for request in self.core.poll(self.clock.now()):
            self.metrics.on_sent(request)
            connections.send(request)
        self._report_application(self.core.events())
        iterated, self._iteration_done = self._iteration_done, trio.Event()
        iterated.set()
        with trio.move_on_at(
            max(self.clock.in_trio_time(self.core.next_deadline), trio.current_time() + ITERATION_MIN_S)
        ):
            await self._has_work.wait()

    def _process_inputs(self, now: float) -> None:
        self._process_events(now)
        while self._outcomes:
            request, outcome = self._outcomes.popleft()
            self.core.on_response(request, outcome, now)

    def _process_events(self, now: float) -> None:
        while True:
            try:
                event = self._from_application.receive_nowait()
            except trio.WouldBlock:
                return
            self._handle(event, now)

    def _handle(self, event: ToNetwork, now: float) -> None:
        if isinstance(event, GiveUp):
            self.core.listing.give_up(event.call_id)
            self.core.give_up(event.call_id)
            return
        if isinstance(event, ListTopics):
            self.core.listing.query(event.call_id, event.topic)
            return
        try:
            self.core.handle(event, now)
        except (ConfigurationError, ValueError) as error:  # the checks of the application's side missed it
            failed = ConsumerError(str(error))
            caller: int | None = getattr(event, "call_id", None)
            self._report_application(
                [BackgroundError(error=failed) if caller is None else CallDone(call_id=caller, error=failed)]
            )

    def _on_outcome(self, request: UnsentRequest, outcome: Outcome) -> None:
        self.metrics.on_outcome(request, outcome)
        self._outcomes.append((request, outcome))
        self._has_work.set()

    def _note_nodes(self, connections: BrokerConnections) -> None:
        """Use addresses of Metadata and FindCoordinator responses."""
        coordinator, nodes = self.core.coordinator, self.core.metadata.nodes
        if nodes is self._nodes_seen[0] and coordinator.address == self._nodes_seen[1]:
            return
        self._nodes_seen = (nodes, coordinator.address)
        known = {node_id: _address(node) for node_id, node in nodes.items()}
        if coordinator.node_id is not None and coordinator.address is not None:
            known[coordinator.node_id] = Address(*coordinator.address)
        connections.set_nodes(known)

    def _report_application(self, events: Sequence[BackgroundEvent]) -> None:
        for event in events:
            self.log.event(event)
            if isinstance(event, PartitionsLost | CatchUpChanged):
                self.observe(note_of(event))
            if isinstance(event, CallDone):
                self._finish(event)
            elif self._admit_event(event):
                self._to_application.send_nowait(event)

    def _admit_event(self, event: BackgroundEvent) -> bool:
        """Count an event and return True if the application gets it.

        One unread FetchArrived is enough, and errors are limited.
        """
        if isinstance(event, CatchUpChanged):
            return False
        if isinstance(event, FetchArrived):
            was_reported, self._is_arrival_reported = self._is_arrival_reported, True
            return not was_reported
        if isinstance(event, BackgroundError):
            if self._unreported_errors >= ERRORS_MAX:
                return False
            self._unreported_errors += 1
        return True

    def _finish(self, result: CallDone) -> None:
        waiting_call = self._waiting_calls.pop(result.call_id, None)
        if waiting_call is not None:
            waiting_call.result = result
            waiting_call.done.set()

    def _end(self) -> None:
        self._is_running = False
        self.closed_reason = self.closed_reason or "the consumer is closed"
        self.core.stop(self.clock.now())
        error = ConsumerClosed(self.closed_reason)
        for call_id in list(self._waiting_calls):
            self._finish(CallDone(call_id=call_id, error=error))
        self._to_application.close()
        self._iteration_done.set()


class NetworkTask(NetworkLoop[ConsumerCore]):
    """Network task of a consumer. Its network side takes part in polls."""

    _is_member = False

    async def begin_poll(self, *, continues: bool) -> None:
        """Begin a poll after all earlier events, or continue a cancelled one."""
        now = self.clock.now()
        is_due = now >= self.core.next_deadline
        """True after a suspension, for example, in which the session or a delay may have ended."""
        waits = continues or self.closed_reason or is_due or self._from_application.statistics().current_buffer_used
        if not waits and self.core.begin_poll_quietly(now):
            await trio.lowlevel.checkpoint()
        else:
            await self.call(lambda call_id: PollBegan(call_id, continues))

    def _process_inputs(self, now: float) -> None:
        super()._process_inputs(now)
        if self._is_waited_for and self._is_member:
            self.core.membership.on_poll(now)

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
