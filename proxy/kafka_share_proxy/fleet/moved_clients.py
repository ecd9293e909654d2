"""Connections of clients that move between workers, with their sockets, over Unix sockets.

Rules: fleet/README.md 22 to 26. A worker connects to the owner's socket for each move, and sends one message with both
descriptors. The response is one byte, and the reason after a refusal.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from kafka_share_proxy.forwarding import moved_connection
from kafka_share_proxy.forwarding.connection import ForwardedConnection
from kafka_share_proxy.forwarding.connection_state import MOVED, ClientState
from kafka_share_proxy.forwarding.served.interfaces import Call
from kafka_share_proxy.loop.interfaces import Notes
from kafka_share_proxy.loop.listeners import Listener, bind_local
from kafka_share_proxy.loop.polling import READ
from kafka_share_proxy.loop.promise import Promise
from kafka_share_proxy.loop.reactor import Reactor
from kafka_share_proxy.wire.definitions import messages
from kafka_share_proxy.wire.errors import RemoteProtocolError, RequestRefused

Admit: TypeAlias = "Callable[[messages.MovedClient, socket.socket, socket.socket], None]"
"""Function that continues a connection on the sockets of the client and the broker. Raises RemoteProtocolError, and
then uses neither.
"""
RESPONSE_S = 3.0
"""Seconds for a response. A link to a silent worker is lost after the same time."""
ARRIVAL_S = 1.0
"""Seconds for a message, which senders send together with the connection."""
ARRIVING_MAX = 64
"""Maximum number of accepted sockets without a message. One more closes the oldest."""
MESSAGE_BYTES_MAX = moved_connection.UNREAD_BYTES_MAX + (16 << 10)
"""Maximum bytes of a message."""
BUSY_SHARE = 0.8
"""Part of a core in use above which a worker refuses clients (fleet/README.md rule 25)."""
REASON_BYTES_MAX = 1024
"""Maximum bytes of a refusal."""
ACCEPTED, REFUSED = b"+", b"-"
"""First byte of a response."""
SOCKETS_PER_CLIENT = 2
"""Socket of the client, then that of its upstream connection."""
_SOCKET_TYPE = socket.SOCK_SEQPACKET


def path_of(links: str) -> str:
    """Return the path at which a worker accepts clients. `links`: where it accepts links."""
    return f"{links}.clients"


class MovedClients:
    """Both ends: clients that leave this worker, and clients that arrive."""

    def __init__(self, reactor: Reactor, notes: Notes) -> None:
        self._reactor = reactor
        self._notes = notes
        self._listener: Listener | None = None
        self._admit: Admit | None = None
        self._arriving: dict[_ArrivingClient, None] = {}
        self._measured = reactor.now(), time.process_time()
        self.busy = 0.0
        """Part of a core that this process used between the last two calls of `measure`."""

    def measure(self) -> None:
        """Measure how busy this process is. Call this regularly."""
        (before, used_before), now, used = self._measured, self._reactor.now(), time.process_time()
        if now > before:
            self.busy, self._measured = (used - used_before) / (now - before), (now, used)

    def listen(self, path: str, admit: Admit) -> None:
        """Accept clients of other workers. Raises OSError."""
        self._admit = admit
        self._listener = Listener(self._reactor, bind_local(path, _SOCKET_TYPE), self._accept, self._report_not_moved)

    def close(self) -> None:
        """Stop accepting clients. Those that leave are still followed."""
        if self._listener is not None:
            self._listener.close()
        for arriving in list(self._arriving):
            arriving.close()

    def send(self, path: str, call: Call[Any]) -> Promise[None] | None:
        """Send the client of a request to the worker at `path`. None if it stays.

        The promise is settled only if that worker refuses it. Otherwise the connection ends here.
        """
        connection, frame = call.connection, call.frame
        if not isinstance(connection, ForwardedConnection) or frame is None:
            return None
        leaving = self._send(path, connection, ClientState.SERVING, frame, moved_connection.stay)
        return None if leaving is None else leaving.stayed

    def send_idle(self, path: str, connection: ForwardedConnection, *, may_stay: bool = False) -> bool:
        """Send a connection between two requests to the worker at `path`. False if it stays.

        A connection that the worker refuses is served here again if it `may_stay`. Otherwise it drains, and is not sent
        again.
        """
        stay = moved_connection.stay_open if may_stay else moved_connection.stay_for_good
        return self._send(path, connection, ClientState.PASSING, None, stay) is not None

    def _send(
        self,
        path: str,
        connection: ForwardedConnection,
        at: ClientState,
        request: memoryview | None,
        stay: Callable[[ForwardedConnection], None],
    ) -> _LeavingClient | None:
        descriptors = moved_connection.sockets_of(connection, at)
        state = None if descriptors is None else moved_connection.state_of(connection, request)
        if descriptors is None or state is None:
            return None
        end = socket.socket(socket.AF_UNIX, _SOCKET_TYPE)
        end.setblocking(False)
        try:
            end.connect(path)
            socket.send_fds(end, [moved_connection.encode(state)], descriptors)
        except OSError as error:
            end.close()
            self._notes("connection-not-moved", connection=connection.id, reason=str(error))
            return None
        moved_connection.begin(connection)
        return _LeavingClient(self._reactor, end, connection, stay, self._notes)

    def _accept(self, end: socket.socket, _host: str) -> None:
        if len(self._arriving) >= ARRIVING_MAX:
            next(iter(self._arriving)).close()
        arriving = _ArrivingClient(self._reactor, end, self._admit_unless_busy, self._remove)
        self._arriving[arriving] = None
        arriving.read()

    def _admit_unless_busy(self, moved: messages.MovedClient, client: socket.socket, broker: socket.socket) -> None:
        if self.busy > BUSY_SHARE and moved.unread:  # without a request, the other worker ends
            raise RequestRefused(f"this worker uses {self.busy:.0%} of a core")
        assert self._admit is not None  # noqa: S101  # it listens
        self._admit(moved, client, broker)

    def _remove(self, arriving: _ArrivingClient) -> None:
        self._arriving.pop(arriving, None)

    def _report_not_moved(self, error: Exception) -> None:
        self._notes("connection-not-moved", reason=str(error))


class _MoveSocket:
    """Unix socket of one move, until it is closed or its time is over."""

    def __init__(self, reactor: Reactor, end: socket.socket, seconds: float) -> None:
        self._reactor, self._end = reactor, end
        self._is_open = True
        self._alarm = reactor.call_at(reactor.now() + seconds, self._on_timeout)
        reactor.register(end.fileno(), READ, self._ready)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._alarm.cancel()
            self._reactor.unregister(self._end.fileno())
            self._reactor.close(self._end)

    def failed(self, error: Exception) -> None:
        """Drop this move, whose code failed."""
        self.close()
        raise error

    def _ready(self, _mask: int) -> None:
        """Read what has arrived."""

    def _on_timeout(self) -> None:
        self.close()


class _LeavingClient(_MoveSocket):
    """Client that another worker was sent, until that one responds."""

    def __init__(
        self,
        reactor: Reactor,
        end: socket.socket,
        connection: ForwardedConnection,
        stay: Callable[[ForwardedConnection], None],
        notes: Notes,
    ) -> None:
        self.stayed: Promise[None] = Promise()
        self._connection, self._stay = connection, stay
        self._notes = notes
        super().__init__(reactor, end, RESPONSE_S)

    def _ready(self, _mask: int) -> None:
        try:
            response = self._end.recv(REASON_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            response = b""
        self.close()
        self._connection.guarded(partial(self._on_response, response))

    def _on_timeout(self) -> None:
        """End the connection in both processes: the other one may still take it from the socket."""
        self.close()
        self._connection.guarded(self._close_both_ends)

    def _on_response(self, response: bytes) -> None:
        connection = self._connection
        if connection.closed:
            return
        if response == ACCEPTED:
            connection.end(MOVED)
        elif response.startswith(REFUSED):
            reason = response[len(REFUSED) :].decode("utf-8", "replace")
            self._notes("connection-not-moved", connection=connection.id, reason=reason)
            self._stay(connection)
            self.stayed.set(None)
        else:
            connection.end("connection-closed", reason="the worker that owns the share group has ended")

    def _close_both_ends(self) -> None:
        if not self._connection.closed:
            moved_connection.cut(self._connection)
            self._connection.end("connection-closed", reason="the worker that owns the share group does not respond")


class _ArrivingClient(_MoveSocket):
    """Client of another worker, until its message is received."""

    def __init__(
        self, reactor: Reactor, end: socket.socket, admit: Admit, ended: Callable[[_ArrivingClient], object]
    ) -> None:
        self._admit, self._ended = admit, ended
        end.setblocking(False)
        super().__init__(reactor, end, ARRIVAL_S)

    def close(self) -> None:
        super().close()
        self._ended(self)

    def _ready(self, _mask: int) -> None:
        self.read()

    def read(self) -> None:
        """Read the message if it has arrived, admit the client or refuse it, and respond."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._end, MESSAGE_BYTES_MAX, SOCKETS_PER_CLIENT)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if data:
            with suppress(OSError):  # the sender has ended, and the client stays here
                self._end.send(self._response(data, descriptors))
        self.close()

    def _response(self, data: bytes, descriptors: list[int]) -> bytes:
        sockets = [sock for sock in map(_socket, descriptors) if sock is not None]
        try:
            if len(sockets) != SOCKETS_PER_CLIENT:
                raise RemoteProtocolError(f"{len(sockets)} sockets instead of {SOCKETS_PER_CLIENT}")
            self._admit(moved_connection.decode(data), *sockets)
        except RemoteProtocolError as error:
            for sock in sockets:
                sock.close()
            return REFUSED + str(error).encode()[: REASON_BYTES_MAX - len(REFUSED)]
        return ACCEPTED


def _socket(descriptor: int) -> socket.socket | None:
    """Return the socket of a received descriptor. Another descriptor is closed."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        return None
    os.set_inheritable(descriptor, False)
    return sock
