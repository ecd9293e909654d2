"""One direction of a connection: the client's requests to the broker."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from os import strerror
from typing import TYPE_CHECKING

from kafka_share_proxy.forwarding.connection_state import GATHERING, INTRODUCING, PASSING, RESUMING
from kafka_share_proxy.forwarding.dispatch import request_dispatch
from kafka_share_proxy.forwarding.served import injected_requests
from kafka_share_proxy.forwarding.served.synchronous_fast_path import SynchronousFastPath
from kafka_share_proxy.forwarding.walk.client_requests import ClientRequests
from kafka_share_proxy.forwarding.walk.gathering import Gathering
from kafka_share_proxy.forwarding.walk.kept_bytes import NOTHING, READ_AFTER_PAUSE, keep, memory_of, must_read_little
from kafka_share_proxy.forwarding.walk.walking import Pending
from kafka_share_proxy.loop.interfaces import Data, Transport
from kafka_share_proxy.loop.polling import ERROR, HANGUP, PEER_LEFT, READ, WRITE
from kafka_share_proxy.loop.promise import Task
from kafka_share_proxy.wire.codec.frame_sizes import REQUEST_HEAD, SIZE

if TYPE_CHECKING:
    from kafka_share_proxy.forwarding.connection import ForwardedConnection

_head = REQUEST_HEAD.unpack_from


class ClientToBroker(ClientRequests):
    """Reader of the client's requests, which go to the broker."""

    __slots__ = (
        "_batch",
        "_buffer",
        "_connection",
        "_fast_path",
        "_recv",
        "_send",
        "_unread_bytes",
        "gathering",
        "gathering_since",
        "reads_little",
        "send_later",
    )

    def __init__(self, connection: ForwardedConnection, transport: Transport, pending: Pending) -> None:
        plane = connection.plane
        super().__init__(pending, plane.passing.first, plane.limits.frame_bytes)
        self._connection = connection
        self._buffer = plane.reactor.buffer
        self.in_flight_max = plane.limits.in_flight_requests
        self._recv = transport.recv_into
        self._send = transport.send  # the broker's transport once it is connected; until then nothing flows
        self._unread_bytes = NOTHING
        self._batch: list[Data] | None = None
        """Data forwarded by the current walk, sent with one write. None between walks."""
        self.reads_little = False
        """True if the last walk left many bytes unprocessed."""
        self._fast_path: SynchronousFastPath | None = None
        self.send_later: Callable[[bytes], None] | None = None
        """See Reactor.pass_on."""
        self.gathering: Gathering | None = None
        self.gathering_since = 0.0

    def ready(self, mask: int) -> None:
        """Handle events of the client's socket: plain reads on the fast path, all else by `_event`."""
        if mask != READ or not self.flows:
            self._event(mask)
            return
        buffer = self._buffer
        recv = self._recv  # a local name, because calling a slot is slow (CPython 3.11 to 3.13 do not cache it)
        try:
            count = recv(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.client_left(error)
            return
        if not count:
            self._connection.client_left(None)
            return
        self.quiet_s = 0
        upto = self.receive(buffer, 0, count)
        if upto != count:
            self.walked(upto, count)
            return
        self.bytes += count
        send = self._send
        try:
            sent = send(buffer[:count])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            sent = -(error.errno or EIO)
        if sent != count or len(self.pending) > self.in_flight_max:
            self.sent(sent, count)

    def ended(self, code: int, _: int) -> None:
        self._connection.client_left(OSError(code, strerror(code)) if code else None)

    def walked(self, upto: int, count: int) -> None:
        fast_path = self._fast_path
        if not upto and fast_path is not None and fast_path.repeats(count):
            return
        if upto or not self._on_fast_path(count):
            self._walk(self._buffer, upto, count)

    def _on_fast_path(self, count: int) -> bool:
        """Serve the commonest local request synchronously: one whole request, alone in the buffer and in flight."""
        if count < REQUEST_HEAD.size:
            return False
        buffer, connection = self._buffer, self._connection
        size, api_version, _ = _head(buffer, 0)
        route = connection.plane.routes.get(api_version)
        if size + SIZE.size != count or route is None or route.synchronous_handler is None:
            return False
        fast_path = self._fast_path
        if fast_path is None:
            fast_path = self._fast_path = SynchronousFastPath(connection, self)
        if not fast_path.may_take():
            return False
        connection.plane.reactor.iterations.doing = connection, route
        self.flows = False
        return route.synchronous_handler(fast_path, buffer[:count], route)

    def sent(self, sent: int, count: int) -> None:
        if sent < 0:
            self._connection.upstream.refuse()
            return
        if sent < count:
            self._connection.upstream.send(self._buffer[sent:count])
        self._connection.update()

    def kept(self, sent: int, data: bytes) -> None:
        """Keep the rest of a request for `send_later`. `sent`: as in `sent`."""
        if sent < 0:
            self._connection.upstream.refuse()
            return
        self._connection.upstream.send(data[sent:])
        self._connection.update()

    def describe(self) -> dict[str, object]:
        return self._connection.describe()

    def failed(self, error: Exception) -> None:
        self._connection.failed(error)

    def connected(self, transport: Transport) -> None:
        self._send = transport.send

    def receive_by(self, transport: Transport) -> None:
        """Read the client by another transport over the same socket."""
        self._recv = transport.recv_into

    @property
    def unread(self) -> memoryview:
        """Received bytes that no walk has processed."""
        return self._unread_bytes

    def write(self, data: Data) -> None:
        self.bytes += len(data)
        if self._batch is None:
            self._connection.upstream.send(data)
        else:
            self._batch.append(data)

    def _send_batch(self) -> None:
        batch = self._batch
        if batch:
            data = batch[0] if len(batch) == 1 else b"".join(batch)
            batch.clear()
            self._connection.upstream.send(data)

    @property
    def walks_on(self) -> bool:
        return self._connection.state.now.reads_requests

    @property
    def is_full(self) -> bool:
        return len(self.pending) > self.in_flight_max

    @property
    def at_boundary(self) -> bool:
        return not (self.missing or self.gathering is not None or self._unread_bytes)

    @property
    def is_straight(self) -> bool:
        """True if a whole receive buffer may be read."""
        return not (self._unread_bytes or self.gathering is not None or self.reads_little)

    @property
    def held(self) -> int:
        return memory_of(self._unread_bytes) + (0 if self.gathering is None else self.gathering.received)

    def drop(self) -> None:
        self.gathering, self._unread_bytes, self._fast_path = None, NOTHING, None

    def gather(
        self, size: int, request: request_dispatch.GatheredRequest, buffer: memoryview, at: int, end: int
    ) -> int:
        """Collect a request of `size` bytes, and dispatch it when it is whole. Return where the rest begins."""
        self._connection.state.move(GATHERING)
        frame_end = at + SIZE.size + size
        if frame_end <= end:
            request_dispatch.gathered(self._connection, request, memoryview(bytearray(buffer[at:frame_end])))
            return frame_end
        self.gathering = Gathering(size, request)
        self.gathering_since = self._connection.plane.reactor.now()
        return self.gathering.add(buffer, at, end)

    def introduce(self) -> None:
        """Continue once the broker has responded to a request that requires authentication, or disconnected."""
        self._connection.state.move(INTRODUCING)
        self._send_batch()  # before the proxy sends its own request
        Task(injected_requests.introduced(self._connection), self._introduced, self._connection).start()

    def _introduced(self, task: Task[None]) -> None:
        if self._connection.closed:
            return
        if task.error is None:
            self._connection.state.move(PASSING)
            self.resume_soon()
        elif isinstance(task.error, Exception):
            self._connection.handler_failed(task.error)

    def begin_with(self, data: Data) -> None:
        """Process bytes that another process has received, before all others."""
        self._unread_bytes = memoryview(bytearray(data))
        self.resume_soon()

    def resume_soon(self) -> None:
        if self._unread_bytes:
            self._connection.state.move(RESUMING)
            self._connection.plane.reactor.call_in_later_iteration(self._connection, self._resume)

    def _resume(self) -> None:
        if self._connection.closed:
            return
        self._connection.state.move(PASSING)
        remaining, self._unread_bytes = self._unread_bytes, NOTHING
        self._walk(remaining, 0, len(remaining), self._connection.plane.reactor.later_share_ends())

    def _event(self, mask: int) -> None:
        connection = self._connection
        if mask & WRITE:
            connection.flush_client()
        if connection.closed:
            return
        if mask & READ and connection.reads_client:
            self._read()
        elif mask & READ:
            connection.update()  # the socket was muted after its event mask was set
        elif mask & (PEER_LEFT | HANGUP | ERROR):
            connection.client_left(None)

    def _read(self) -> None:
        unread_bytes = self._unread_bytes
        self._buffer[: len(unread_bytes)] = unread_bytes
        buffer_end = len(unread_bytes) + READ_AFTER_PAUSE if self.reads_little else None
        try:
            count = self._recv(self._buffer[len(unread_bytes) : buffer_end])
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.client_left(error)
            return
        if not count:
            self._connection.client_left(None)
            return
        self.quiet_s = 0
        self._unread_bytes = NOTHING
        self._walk(self._buffer, 0, len(unread_bytes) + count)

    def _walk(self, buffer: memoryview, at: int, end: int, deadline: float | None = None) -> None:
        """Walk buffer[at:end] until `deadline`. None: for this connection's share of the iteration."""
        self._batch = []
        try:
            if at:
                self.write(buffer[:at])
            at, is_over = self._walk_until(buffer, at, end, deadline)
        finally:
            self._send_batch()
            self._batch = None
        connection = self._connection
        if not connection.closed:
            self._unread_bytes = keep(buffer, at, end, self._buffer)
            if buffer is self._buffer:
                self.reads_little = must_read_little(end - at, self.reads_little)
            if is_over:
                self.resume_soon()
        connection.held.update()
        connection.update()

    def _walk_until(self, buffer: memoryview, at: int, end: int, deadline: float | None) -> tuple[int, bool]:
        """Walk buffer[at:end]."""
        reactor, forwarded_runs = self._connection.plane.reactor, 1 if at else 0
        if at and deadline is None:
            deadline = reactor.share_ends()
        while at < end and self.walks_on:
            upto = self.receive(buffer, at, end) if self.gathering is None else at
            if upto > at:
                self.write(buffer[at:upto])
                at, forwarded_runs = upto, forwarded_runs + 1
            else:
                walked = self._gather_or_treat(buffer, at, end)
                if walked is None:
                    break
                at, forwarded_runs = walked, 0
            if forwarded_runs != 1 and at < end and self.walks_on:
                if deadline is None:
                    deadline = reactor.share_ends()
                if reactor.now() >= deadline:
                    return at, True
        return at, False

    def _gather_or_treat(self, buffer: memoryview, at: int, end: int) -> int | None:
        """Handle a request that is not forwarded unchanged. None if more bytes are needed."""
        gathering = self.gathering
        if gathering is None:
            return request_dispatch.treat(self._connection, buffer, at, end)
        upto = gathering.add(buffer, at, end)
        if gathering.is_whole:
            self.gathering = None
            assert isinstance(gathering.subject, request_dispatch.GatheredRequest)  # noqa: S101  # nothing else is gathered
            request_dispatch.gathered(self._connection, gathering.subject, gathering.frame)
        return upto
