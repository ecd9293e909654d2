"""The local request of a connection, served like Kafka's muted channel (forwarding/README.md rule 20).

The connection is MUTED until all earlier responses are written, SERVING while the handler runs, then RESPONDING until
the kernel has the response (`connection_state`). The client is not read meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka_share_proxy.forwarding.connection_state import MUTED, PASSING, RESPONDING, SERVING
from kafka_share_proxy.forwarding.dispatch import request_dispatch
from kafka_share_proxy.forwarding.served import injected_requests
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.forwarding.served.upstream_requests import framed
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.loop.slices import Work
from kafka_share_proxy.wire.codec import frames, headers
from kafka_share_proxy.wire.errors import RequestRefused, TooManyElements
from kafka_share_proxy.wire.values import DECODED_BYTES

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

AT_ONCE_BYTES = 8 << 10
"""Maximum bytes of a request that is decoded in one go."""


class LocalRequests:
    """Local request of one connection. There is at most one."""

    __slots__ = ("_connection", "_frame", "_request", "_response_bytes", "_started_at", "_task", "client_id")

    def __init__(self, connection: ForwardedConnection) -> None:
        self._connection = connection
        self._request: request_dispatch.GatheredRequest | None = None
        self._frame = memoryview(b"")
        self._task: Task[frames.ResponseFrame | None] | None = None
        self._response_bytes = 0
        self._started_at = 0.0
        self.client_id: str | None = None
        """Last client id of the client. The proxy's own requests carry it, because brokers have quotas by client id."""

    def mute(self, request: request_dispatch.GatheredRequest, frame: memoryview) -> None:
        """Mute the client for a complete request, which starts when everything before it has a response.

        Raises LocalProtocolError if another request is being served, or none was gathered.
        """
        self._connection.state.move(MUTED)
        self._started_at = time.perf_counter()
        self._request = request
        self._frame = frame

    def current(self) -> tuple[int, float] | None:
        """Return API key and age in seconds of the request in progress. None if there is none."""
        return None if self._request is None else (self._request.route.key, time.perf_counter() - self._started_at)

    @property
    def held(self) -> int:
        """Bytes of memory of the request, as a frame and decoded."""
        return len(self._frame) * DECODED_BYTES

    def start(self) -> None:
        """Run the handler. An unreadable request ends the connection."""
        request = self._request
        assert request is not None  # noqa: S101  # muted
        self._connection.state.move(SERVING)
        self._connection.plane.reactor.iterations.doing = self._connection, request.route
        self._task = Task(self._serve(request), self._handler_ended, self._connection)
        self._task.start()

    async def _serve(self, request: request_dispatch.GatheredRequest) -> frames.ResponseFrame | None:
        """Run the handler. Nothing is decoded before the broker has responded to a request on the client's connection.

        A route that needs no authentication does not wait: during SASL a request of the proxy would end the connection.
        """
        handler = request.route.handler
        assert handler is not None  # noqa: S101  # the table gives LOCAL and INSPECT one
        if not (self._connection.is_known or request.route.needs_no_authentication):
            await injected_requests.introduced(self._connection)
        call = await self._decode(request)
        if request.route.picks is not None and not await request.route.picks(call):
            return None
        return await framed(call, await handler(call))

    def attribute_iteration(self) -> None:
        """Attribute a slow loop iteration from now on to this request, because its handler probably continues now."""
        if self._connection.state.now is SERVING and self._request is not None:
            self._connection.plane.reactor.iterations.doing = self._connection, self._request.route

    def written(self) -> None:
        """Unmute the client: the kernel has the whole response."""
        self._connection.plane.budget.sent(self._response_bytes)
        self._response_bytes = 0
        self._unmute()

    def cancel(self) -> None:
        """Cancel the request at the end of the connection. The caller releases unsent bytes with `take_unsent`."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._frame = memoryview(b"")

    def take_unsent(self) -> int:
        """Return the response bytes that the budget still counts. The caller has to release them."""
        size, self._response_bytes = self._response_bytes, 0
        return size

    async def _decode(self, request: request_dispatch.GatheredRequest) -> Call[Any]:
        """Decode the request. Raises RemoteProtocolError, or RequestRefused if the request has too many elements."""
        frame, slices = self._frame[4:], self._connection.plane.slices
        if len(frame) > AT_ONCE_BYTES:
            await slices.wait()
        work = Work(slices)
        if request.route.opaque:
            message = frame
        else:
            if len(frame) <= AT_ONCE_BYTES:
                header, message = frames.decode_request(frame)
            else:
                header, message = await self._read_in_slices(request, frame, work)
            self.client_id = header.client_id
        return Call(
            key=request.route.key,
            version=request.route.version,
            correlation_id=request.head.correlation_id,
            client_id=None if request.route.opaque else self.client_id,
            message=message,
            connection=self._connection,
            work=work,
            frame=frame,
        )

    async def _read_in_slices(
        self, request: request_dispatch.GatheredRequest, frame: memoryview, work: Work
    ) -> tuple[headers.RequestHeader, Any]:
        elements_max = self._connection.plane.limits.served_request_elements
        try:
            return await work.drive(frames.decode_request_in_slices(frame, elements_max))
        except TooManyElements:
            request_name = f"request {request.route.key} v{request.route.version}"
            text = f"{request_name} has more elements than limits.served_request_elements ({elements_max})"
            raise RequestRefused(text) from None

    def _handler_ended(self, task: Task[frames.ResponseFrame | None]) -> None:
        connection, self._task = self._connection, None
        if connection.closed:
            return
        if task.error is not None:
            assert isinstance(task.error, Exception)  # noqa: S101  # Task catches no other
            connection.handler_failed(task.error)
        elif task.value is None:
            self._forward()
        else:
            self._response(task.value)

    def _forward(self) -> None:
        assert self._request is not None  # noqa: S101  # it was running
        request_dispatch.pass_whole(self._connection, self._request, self._frame)
        self._frame = memoryview(b"")
        self._unmute()
        self._connection.held.update()
        self._connection.update()

    def _response(self, response: frames.ResponseFrame) -> None:
        connection, size = self._connection, len(response)
        if self._request is not None:
            connection.plane.served(self._request.route.key, time.perf_counter() - self._started_at)
        connection.state.move(RESPONDING)
        self._frame = memoryview(b"")
        connection.held.update()
        self._response_bytes = size
        connection.plane.budget.add_unsent(size)
        connection.response(response)

    def _unmute(self) -> None:
        self._connection.state.move(PASSING)
        self._request = None
        self._connection.requests.resume_soon()
