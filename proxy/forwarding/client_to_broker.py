"""One direction of a connection: the client's requests to the broker."""

from __future__ import annotations

from errno import EIO
from os import strerror
from typing import Protocol

from proxy.forwarding import injected_requests, request_dispatch
from proxy.forwarding.client_requests import ClientRequests
from proxy.forwarding.connection_state import ClientState
from proxy.forwarding.gathering import Gathering
from proxy.forwarding.taken_at_once import TakenAtOnce, TakesAtOnce
from proxy.forwarding.walking import Pending
from proxy.loop.polling import ERROR, HANGUP, PEER_LEFT, READ, WRITE
from proxy.loop.promise import Task
from proxy.loop.transports import Data, Transport
from proxy.wire.frame_sizes import REQUEST_HEAD, SIZE

_head = REQUEST_HEAD.unpack_from


class Forwarder(request_dispatch.TakesRequests, injected_requests.Asks, TakesAtOnce, Protocol):
    """The connection whose requests pass."""

    @property
    def reads_client(self) -> bool:
        """Whether more of the client may be read now."""

    def to_broker(self, data: Data) -> None:
        """Pass on, or keep until there is a connection that takes it."""

    def flush_client(self) -> None:
        """The client takes more."""

    def broker_refuses(self) -> None:
        """Sending to the broker failed."""

    def client_left(self, error: OSError | None) -> None:
        """The client's half has gone."""

    def handler_failed(self, error: Exception) -> None:
        """What was asked for this connection failed: it ends."""


class ClientToBroker(ClientRequests):
    """Reads the client, walks its requests, writes to the broker. See `connection` for how it all hangs together."""

    __slots__ = (
        "_at_once",
        "_buffer",
        "_connection",
        "_kept",
        "_recv",
        "_send",
        "gathering",
        "gathering_since",
    )

    def __init__(self, connection: Forwarder, transport: Transport, pending: Pending) -> None:
        plane = connection.plane
        super().__init__(pending, plane.passing, plane.limits.frame_bytes)
        self._connection = connection
        self._buffer = plane.reactor.buffer
        self.in_flight_max = plane.limits.in_flight_requests
        self._recv = transport.recv_into
        self._send = transport.send  # the broker's, once there is one; until then nothing flows
        self._kept = b""
        self._at_once: TakenAtOnce | None = None
        self.gathering: Gathering | None = None
        """The request that is being gathered."""
        self.gathering_since = 0.0
        """When the gathering began, in seconds of the loop's clock."""

    def ready(self, mask: int) -> None:
        """The client's socket is ready: the fast path, or whatever else there is."""
        if mask != READ or not self.flows:
            self._event(mask)
            return
        buffer = self._buffer
        recv = self._recv  # called by a name of its own: calling a slot is slow (CPython 3.11 to 3.13 do not cache it)
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
        """See pump.FedWalk."""
        self._connection.client_left(OSError(code, strerror(code)) if code else None)

    def walked(self, upto: int, count: int) -> None:
        """See pump.FedWalk."""
        if upto or not self._taken_at_once(count):
            self._walk(0, upto, count)

    def _taken_at_once(self, count: int) -> bool:
        """The commonest of what is answered here: one whole request, alone in the buffer, with nothing before it."""
        buffer = self._buffer
        if count < REQUEST_HEAD.size:
            return False
        size, name, _ = _head(buffer, 0)
        connection = self._connection
        route = connection.plane.routes.get(name)
        if size + SIZE.size != count or route is None or route.at_once is None:
            return False
        if self._at_once is None:
            self._at_once = TakenAtOnce(connection, self)
        if not self._at_once.may_take:
            return False
        connection.plane.reactor.turns.doing = connection, route
        self.flows = False  # until the answer goes out, or the long way is gone
        return route.at_once(self._at_once, buffer[:count], route)

    def sent(self, sent: int, count: int) -> None:
        """See pump.FedWalk."""
        if sent < 0:
            self._connection.broker_refuses()
            return
        if sent < count:
            self._connection.to_broker(self._buffer[sent:count])
        self._connection.update()

    def describe(self) -> dict[str, object]:
        """See connection_parts.PartOwner."""
        return self._connection.describe()

    def failed(self, error: Exception) -> None:
        """See faults.FaultOwner."""
        self._connection.failed(error)

    def connected(self, transport: Transport) -> None:
        """There is a broker to write to."""
        self._send = transport.send

    def write(self, data: Data) -> None:
        """Pass on what is not one straight run of the receive buffer."""
        self.bytes += len(data)
        self._connection.to_broker(data)

    @property
    def walks_on(self) -> bool:
        """Whether the next request may be looked at."""
        return self._connection.state.now.looks_at_requests

    @property
    def is_full(self) -> bool:
        """Whether too many requests wait for their answer."""
        return len(self.pending) > self.in_flight_max

    @property
    def at_boundary(self) -> bool:
        """Whether no part of a request has come."""
        return not (self.left or self.gathering is not None or self._kept)

    @property
    def is_straight(self) -> bool:
        """Whether nothing of a request is kept here."""
        return not (self._kept or self.gathering is not None)

    @property
    def held(self) -> int:
        """Bytes of the client that are kept here."""
        return len(self._kept) + (0 if self.gathering is None else self.gathering.come)

    def drop(self) -> None:
        """Let go of what is kept: the connection has ended, and may wait for the garbage collector for long."""
        self.gathering, self._kept, self._at_once = None, b"", None

    def gather(self, size: int, asked: request_dispatch.GatheredRequest, at: int, end: int) -> int:
        """Collect a request of `size` bytes, of which buffer[at:end] has come; return where the rest begins."""
        self._connection.state.move(ClientState.GATHERING)
        self.gathering = Gathering(size, asked)
        self.gathering_since = self._connection.plane.reactor.now()
        return self.gathering.add(self._buffer, at, end)

    def introduce(self) -> None:
        """Wait until the broker has answered a question on this connection, then go on; else it ends us."""
        self._connection.state.move(ClientState.INTRODUCING)
        Task(injected_requests.introduced(self._connection), self._introduced, self._connection).start()

    def _introduced(self, task: Task[None]) -> None:
        if self._connection.closed:
            return
        if task.error is None:
            self._connection.state.move(ClientState.PASSING)
            self.resume_soon()
        elif isinstance(task.error, Exception):
            self._connection.handler_failed(task.error)

    def resume_soon(self) -> None:
        """Go on behind a request that was served: with what is kept, at the end of this turn."""
        if self._kept:
            self._connection.state.move(ClientState.RESUMING)
            self._connection.call_soon(self._resume)

    def _resume(self) -> None:
        if self._connection.closed:
            return
        self._connection.state.move(ClientState.PASSING)
        kept, self._kept = self._kept, b""
        self._buffer[: len(kept)] = kept
        self._walk(0, 0, len(kept))

    def _event(self, mask: int) -> None:
        connection = self._connection
        if mask & WRITE:
            connection.flush_client()
        if connection.closed:
            return
        if mask & READ and connection.reads_client:
            self._read()
        elif mask & READ:
            connection.update()  # muted since it was last said what is waited for
        elif mask & (PEER_LEFT | HANGUP | ERROR):
            connection.client_left(None)

    def _read(self) -> None:
        """Read behind what is kept: the beginning of a head."""
        kept = self._kept
        self._buffer[: len(kept)] = kept
        try:
            count = self._recv(self._buffer[len(kept) :])
        except BlockingIOError:
            return
        except OSError as error:
            self._connection.client_left(error)
            return
        if not count:
            self._connection.client_left(None)
            return
        self.quiet_s = 0
        self._kept = b""
        self._walk(0, 0, len(kept) + count)

    def _walk(self, start: int, at: int, end: int) -> None:
        """Walk buffer[at:end]; what stands from `start` to `at` passes already."""
        buffer = self._buffer
        if at > start:
            self.write(buffer[start:at])
        while at < end and self.walks_on:
            walked = self._step(at, end)
            if walked is None:
                break
            at = walked
        if at < end and not self._connection.closed:
            self._kept = bytes(buffer[at:end])
        self._connection.held.update()
        self._connection.update()

    def _step(self, at: int, end: int) -> int | None:
        """One run of frames that pass, or one that does not; None when more bytes are needed."""
        if self.gathering is not None:
            upto = self.gathering.add(self._buffer, at, end)
            self._look_if_whole()
            return upto
        upto = self.receive(self._buffer, at, end)
        if upto > at:
            self.write(self._buffer[at:upto])
            return upto
        walked = request_dispatch.treat(self._connection, self._buffer, at, end)
        self._look_if_whole()
        return walked

    def _look_if_whole(self) -> None:
        gathering = self.gathering
        if gathering is not None and gathering.is_whole:
            self.gathering = None
            assert isinstance(gathering.subject, request_dispatch.GatheredRequest)  # noqa: S101  # nothing else is gathered
            request_dispatch.gathered(self._connection, gathering.subject, gathering.frame)
