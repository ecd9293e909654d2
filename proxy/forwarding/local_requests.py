"""A request that is served here: Kafka's muted channel, for one connection (forwarding/README.md rule 20).

The connection is MUTED until all earlier answers are written, SERVING while the handler runs, then ANSWERING until the
kernel has the answer (`connection_state`). All the while nothing is read from the client; what was received behind the
request is kept by the connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from proxy.brokers.interfaces import Connection
from proxy.forwarding import injected_requests, request_dispatch
from proxy.forwarding.ask_and_reply import framed
from proxy.forwarding.connection_parts import PartOwner
from proxy.forwarding.connection_state import ClientState
from proxy.forwarding.interfaces import Call
from proxy.forwarding.walking import Pending
from proxy.loop.promise import Task
from proxy.loop.slices import Work
from proxy.wire import frames, headers
from proxy.wire.errors import RequestRefused, TooManyElements
from proxy.wire.values import DECODED_BYTES

AT_ONCE_BYTES = 8 << 10
"""A request up to this size is read in one go."""


class ResumableStream(request_dispatch.RequestStream, Protocol):
    """The client's requests, of which some bytes may be kept until one is answered."""

    def resume_soon(self) -> None:
        """Go on behind a request that was served."""


class Serves(PartOwner, Connection, Protocol):
    """The connection whose request is served here."""

    is_known: bool
    """Whether the broker has answered a request that it answers to clients it knows only."""

    @property
    def requests(self) -> ResumableStream:
        """What is read from the client."""

    @property
    def pending(self) -> Pending:
        """Requests that wait for their answer."""

    def answer(self, data: frames.Answer) -> None:
        """The answer to the request; `written` is called once the kernel has it."""

    def guarded(self, callback: Callable[[], object]) -> None:
        """Call now; what it raises ends this connection and nothing else."""

    def handler_failed(self, error: Exception) -> None:
        """The handler raised: this connection ends."""


class LocalRequests:
    """The local request of one connection; there is at most one."""

    __slots__ = ("_answer_bytes", "_asked", "_begun", "_connection", "_frame", "_task", "client_id")

    def __init__(self, connection: Serves) -> None:
        self._connection = connection
        self._asked: request_dispatch.GatheredRequest | None = None
        self._frame = memoryview(b"")
        self._task: Task[frames.Answer | None] | None = None
        self._answer_bytes = 0
        self._begun = 0.0
        self.client_id: str | None = None
        """What the client called itself last; the proxy's own requests carry it, for brokers have quotas by it."""

    def mute(self, asked: request_dispatch.GatheredRequest, frame: memoryview) -> None:
        """A request came whole; it starts when everything before it is answered.

        Raises:
            LocalProtocolError: another is served, or none was gathered.
        """
        self._connection.state.move(ClientState.MUTED)
        self._begun = time.perf_counter()
        self._asked = asked
        self._frame = frame

    @property
    def held(self) -> int:
        """Bytes that the request takes, as a frame and decoded."""
        return len(self._frame) * DECODED_BYTES

    def start(self) -> None:
        """Everything before it is answered: run the handler. A request that cannot be read ends the connection."""
        asked = self._asked
        assert asked is not None  # noqa: S101  # muted
        self._connection.state.move(ClientState.SERVING)
        self._connection.plane.reactor.turns.doing = self._connection, asked.route
        self._task = Task(self._serve(asked), self._done, self._connection)
        self._task.start()

    async def _serve(self, asked: request_dispatch.GatheredRequest) -> frames.Answer | None:
        """Nothing is decoded before the broker has answered something on the client's connection."""
        handler = asked.route.handler
        assert handler is not None  # noqa: S101  # the table gives LOCAL and INSPECT one
        if not self._connection.is_known:
            await injected_requests.introduced(self._connection)
        call = await self._decode(asked)
        if asked.route.picks is not None and not await asked.route.picks(call):
            return None
        return await framed(call, await handler(call))

    def goes_on(self) -> None:
        """Something that the handler may wait for is here: what takes long from now on is most likely its."""
        if self._connection.state.now is ClientState.SERVING and self._asked is not None:
            self._connection.plane.reactor.turns.doing = self._connection, self._asked.route

    def written(self) -> None:
        """The kernel has the whole answer."""
        self._connection.plane.budget.sent(self._answer_bytes)
        self._answer_bytes = 0
        self._unmute()

    def cancel(self) -> None:
        """The connection ends; what is still unsent is accounted for by `take_unsent`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._frame = memoryview(b"")

    def take_unsent(self) -> int:
        """Bytes of the answer that the budget still counts; from now on the caller gives them back."""
        taken, self._answer_bytes = self._answer_bytes, 0
        return taken

    async def _decode(self, asked: request_dispatch.GatheredRequest) -> Call[Any]:
        """Raises RemoteProtocolError, RequestRefused where the request has too many elements."""
        frame, slices = self._frame[4:], self._connection.plane.slices
        if len(frame) > AT_ONCE_BYTES:
            await slices.turn()
        work = Work(slices)
        if asked.route.opaque:
            message = frame
        else:
            header, message = await self._read(asked, frame, work)
            self.client_id = header.client_id
        return Call(
            key=asked.route.key,
            version=asked.route.version,
            correlation_id=asked.head.correlation_id,
            client_id=None if asked.route.opaque else self.client_id,
            message=message,
            connection=self._connection,
            work=work,
            frame=frame,
        )

    async def _read(
        self, asked: request_dispatch.GatheredRequest, frame: memoryview, work: Work
    ) -> tuple[headers.RequestHeader, Any]:
        if len(frame) <= AT_ONCE_BYTES:
            return frames.decode_request(frame)
        most = self._connection.plane.limits.served_request_elements
        try:
            return await work.drive(frames.decode_request_in_slices(frame, most))
        except TooManyElements:
            what = f"request {asked.route.key} v{asked.route.version}"
            text = f"{what} has more elements than limits.served_request_elements ({most})"
            raise RequestRefused(text) from None

    def _done(self, task: Task[frames.Answer | None]) -> None:
        """Send the answer of a handler that has ended."""
        connection, self._task = self._connection, None
        if connection.closed:
            return
        if task.error is not None:
            assert isinstance(task.error, Exception)  # noqa: S101  # Task catches no other
            connection.handler_failed(task.error)
        elif task.value is None:
            connection.guarded(self._forward)
        else:
            connection.guarded(lambda: self._answer(task.value or b""))

    def _forward(self) -> None:
        assert self._asked is not None  # noqa: S101  # it was running
        request_dispatch.pass_whole(self._connection, self._asked, self._frame)
        self._unmute()
        self._connection.update()

    def _answer(self, answer: frames.Answer) -> None:
        if self._asked is not None:
            self._connection.plane.served(self._asked.route.key, time.perf_counter() - self._begun)
        self._connection.state.move(ClientState.ANSWERING)
        self._frame = memoryview(b"")
        self._connection.held.update()
        self._answer_bytes = len(answer)
        self._connection.plane.budget.add_unsent(len(answer))
        self._connection.answer(answer)

    def _unmute(self) -> None:
        self._connection.state.move(ClientState.PASSING)
        self._asked = None
        self._frame = memoryview(b"")
        self._connection.held.update()
        self._connection.requests.resume_soon()
